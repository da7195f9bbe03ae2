"""Progress of a search as events: ``progress`` and ``best``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, ref

from ....planner.search.branch_and_bound import BranchAndBound
from ...views.report_text import shape_text
from ..problems import encode

EmitEvent = Callable[[str, bytes], None]
INTERVAL_S = 0.25


class SearchProgress:
    """Search watcher that emits a few events a second.

    Args:
        emit: takes an event's name and its JSON.
        reports_best: True if one search's best plan would be the whole answer.
    """

    def __init__(self, emit: EmitEvent, reports_best: bool) -> None:
        self._emit, self._reports_best = emit, reports_best
        self._start_s = time.monotonic()
        self._last_emit_s = -math.inf
        self._best = math.inf
        self._figures: dict[str, Any] = {"candidates": 0}
        self._earlier_candidates = 0
        self._search: ReferenceType[BranchAndBound] | None = (
            None  # whoever looks on keeps nothing alive
        )

    def progress(self, seen: int, total: int, best: float) -> None:
        """A search's ``progress``: shapes seen, shapes in all, best value."""
        self._figures |= {"shapes_seen": seen, "shapes": total}
        if time.monotonic() - self._last_emit_s >= INTERVAL_S:
            self._emit_event()

    def __call__(self, search: BranchAndBound) -> None:
        """Emit events after a trial; a search's ``watch``."""
        if self._search is None or self._search() is not search:
            self._earlier_candidates = self._figures["candidates"]
            self._search = ref(search)
        self._figures["candidates"] = self._earlier_candidates + search.evaluator.count
        late = time.monotonic() - self._last_emit_s >= INTERVAL_S
        better = self._reports_best and search.best_value < self._best
        if better and (late or math.isinf(self._best)):
            self._emit_best(search)
        elif late:
            self._emit_event()

    def _emit_event(self, name: str = "progress", **more: Any) -> None:
        self._last_emit_s = time.monotonic()
        seconds = round(self._last_emit_s - self._start_s, 3)
        self._emit(name, encode({**self._figures, "seconds": seconds, **more}))

    def _emit_best(self, search: BranchAndBound) -> None:
        incumbent = search.current_result()
        if incumbent is None:
            return
        self._best = incumbent.value
        self._emit_event(
            "best",
            plan=incumbent.outcome.plan.to_document(),
            plan_hash=incumbent.outcome.plan.hash,
            shape=shape_text(incumbent.outcome.plan),
            step_time_s=incumbent.outcome.step_time_s,
            lower_bound_s=incumbent.lower_bound_s,
            gap=incumbent.gap,
        )
