"""How far a search is, as events of its job: ``progress`` now and then, ``best`` plans."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, ref

from ....planner.search.branch_and_bound import Search
from ...views.report_text import shape_text
from ..problems import encode

Tell = Callable[[str, bytes], None]
EVERY_S = 0.25


class SearchTelling:
    """Looks at a search after its trials and tells of it a few times a second; changes nothing.

    Args:
        tell: takes an event's name and its JSON.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._start_s = time.monotonic()
        self._told_s = -math.inf
        self._best = math.inf
        self._known: dict[str, Any] = {"candidates": 0}
        self._earlier = 0
        self._search: ReferenceType[Search] | None = None  # whoever looks on keeps nothing alive

    def progress(self, seen: int, total: int, best: float) -> None:
        """As a search's ``progress``: shapes seen, shapes in all, best value."""
        self._known |= {"shapes_seen": seen, "shapes": total}
        if time.monotonic() - self._told_s >= EVERY_S:
            self._say()

    def __call__(self, search: Search, whole: bool) -> None:
        """As a search's ``watch``; the best plan is told where it would be the whole answer."""
        if self._search is None or self._search() is not search:
            self._earlier = self._known["candidates"]
            self._search = ref(search)
        self._known["candidates"] = self._earlier + search.evaluator.count
        late = time.monotonic() - self._told_s >= EVERY_S
        better = whole and search.best_value < self._best
        if better and (late or math.isinf(self._best)):
            self._say_best(search)
        elif late:
            self._say()

    def _say(self, name: str = "progress", **more: Any) -> None:
        self._told_s = time.monotonic()
        seconds = round(self._told_s - self._start_s, 3)
        self._tell(name, encode({**self._known, "seconds": seconds, **more}))

    def _say_best(self, search: Search) -> None:
        found = search.so_far()
        if found is None:
            return
        self._best = found.value
        self._say(
            "best",
            plan=found.outcome.plan.to_document(),
            plan_hash=found.outcome.plan.hash,
            shape=shape_text(found.outcome.plan),
            step_time_s=found.outcome.step_time_s,
            lower_bound_s=found.lower_bound_s,
            gap=found.gap,
        )
