"""Changes of a run's configuration ranked by gain: each axis alone, and all together.

Alone: the best other value of one axis, the rest as it is. Together: from the best of them, axis
after axis is changed while the step gets shorter (coordinate descent). A change is taken only if
its plan fits, or needs no more memory than the run's own where that is over by our count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...costmodel.memory.feasibility import DEFAULT_RISK
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import Prediction
from ..frameworks.exportable import exportable
from ..frameworks.framework import Framework
from ..planning.report import simulate_plan
from .conversions import conversion
from .decisions import Neighbors, RunDecisions
from .flags import FlagChange, flag_changes

LEAST_GAIN = 0.002
"""Gain from which a change is listed."""
ROUNDS, ROUND_GAIN = 6, 0.002


class AxisChange(NamedTuple):
    """An axis and its values in words."""

    axis: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.axis} {self.was} -> {self.now}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """A plan near the run's, and what it gains.

    ``gain``: speedup of the simulated step less one; ``step_s`` is the measured step divided by
    that speedup. ``memory_bytes``: reserved on the fullest device. ``same_mathematics``: sums are
    of the same numbers, in another order. ``conversion``: what a checkpoint must be converted
    for; empty if it loads as it is. ``flags``: keys of the framework's file that differ.
    """

    axes: tuple[AxisChange, ...]
    plan: Plan
    stack: str
    gain: float
    step_s: float
    mfu: float
    memory_bytes: int
    memory_change_bytes: int
    same_mathematics: bool
    conversion: str
    flags: tuple[FlagChange, ...]

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "changes": [item._asdict() for item in self.axes],
            "gain": self.gain,
            "step_time_s": self.step_s,
            "mfu": self.mfu,
            "memory_bytes": self.memory_bytes,
            "memory_change_bytes": self.memory_change_bytes,
            "same_mathematics": self.same_mathematics,
            "checkpoint_conversion": self.conversion,
            "flags": [item._asdict() for item in self.flags],
            "stack": self.stack,
            "plan": self.plan.to_document(),
            "plan_hash": self.plan.hash,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedChanges:
    """Changes of one axis by falling gain, and all of them together.

    ``together`` is None where at most one helps; ``priced`` plans were simulated; ``why_none``
    says why nothing was tried.
    """

    alone: tuple[RunChange, ...]
    together: RunChange | None
    priced: int
    why_none: str = ""


class ChangeSearch:
    """Search for faster neighbors of a plan.

    Args:
        plan: the run's.
        stack: that prices it.
        measured: that prices it.
        framework: whose words changes are told in; None: none.
        risk: accepted chance of running out of memory.
        measured_s: the measured step, which the gains divide.
        mfu: of the measured step.
    """

    def __init__(
        self,
        plan: Plan,
        stack: StackSpec,
        measured: Measured | None,
        framework: Framework | None,
        measured_s: float,
        mfu: float,
        risk: float = DEFAULT_RISK,
    ) -> None:
        self._plan, self._stack, self._measured = plan, stack, measured
        self._framework, self._risk = framework, risk
        self._measured_s, self._mfu = measured_s, mfu
        self._priced: dict[RunDecisions, tuple[Plan, Prediction] | None] = {}
        self._base = self._predict(plan, stack)
        self._base_bytes = _peak_bytes(self._base)

    def ranked(self) -> RankedChanges:
        """All changes that gain."""
        try:
            near = Neighbors(exportable(self._plan, self._stack), self._stack, self._framework)
        except InputError as error:
            return RankedChanges(alone=(), together=None, priced=0, why_none=str(error))
        alone = self._best_of_axes(near, near.base, self._base.step_time_s)
        found = sorted(alone.values(), key=lambda pair: pair[1])
        changes = tuple(self._change(near, decisions) for decisions, _ in found)
        together = self._together(near, found)
        return RankedChanges(
            alone=changes,
            together=None if together is None else self._change(near, together),
            priced=len(self._priced),
        )

    def _best_of_axes(
        self, near: Neighbors, start: RunDecisions, limit_s: float
    ) -> dict[str, tuple[RunDecisions, float]]:
        """The best value of each axis that beats ``limit_s``, with its seconds."""
        best: dict[str, tuple[RunDecisions, float]] = {}
        for axis, values in near.axes(start).items():
            for decisions in values:
                priced = self._price(near, decisions)
                if priced is None or priced[1].step_time_s * (1 + LEAST_GAIN) > limit_s:
                    continue
                seconds = priced[1].step_time_s
                if axis not in best or seconds < best[axis][1]:
                    best[axis] = (decisions, seconds)
        return best

    def _together(
        self, near: Neighbors, alone: list[tuple[RunDecisions, float]]
    ) -> RunDecisions | None:
        if not alone:
            return None
        best, seconds = alone[0]
        for _ in range(ROUNDS):
            found = self._best_of_axes(near, best, seconds / (1 + ROUND_GAIN))
            if not found:
                break
            best, seconds = min(found.values(), key=lambda pair: pair[1])
        return None if best == alone[0][0] else best

    def _price(self, near: Neighbors, decisions: RunDecisions) -> tuple[Plan, Prediction] | None:
        """The plan of decisions if it is legal and fits."""
        if decisions not in self._priced:
            plan = near.plan(decisions)
            made = None
            if plan is not None:
                prediction = self._predict(plan, near.stack_of(decisions))
                if prediction.feasible or self._needs_no_more(prediction):
                    made = (plan, prediction)
            self._priced[decisions] = made
        return self._priced[decisions]

    def _needs_no_more(self, prediction: Prediction) -> bool:
        return not self._base.feasible and _peak_bytes(prediction) <= self._base_bytes

    def _predict(self, plan: Plan, stack: StackSpec) -> Prediction:
        return simulate_plan(plan, stack, self._measured, (), self._risk).report.prediction

    def _change(self, near: Neighbors, decisions: RunDecisions) -> RunChange:
        priced = self._price(near, decisions)
        if priced is None:
            raise RuntimeError("a change that was ranked has a price")
        plan, prediction = priced
        before, after = near.base.words(), decisions.words()
        axes = tuple(
            _axis_change(axis, before[axis], after[axis])
            for axis in before
            if before[axis] != after[axis]
        )
        speed = self._base.step_time_s / prediction.step_time_s
        name = None if self._framework is None else self._framework.name
        stack = near.stack_of(decisions)
        size = _peak_bytes(prediction)
        return RunChange(
            axes=axes,
            plan=plan,
            stack=stack.name,
            gain=speed - 1,
            step_s=self._measured_s / speed,
            mfu=self._mfu * speed,
            memory_bytes=size,
            memory_change_bytes=size - self._base_bytes,
            same_mathematics=True,
            conversion=conversion(name, stack.name, tuple(change.axis for change in axes)),
            flags=flag_changes(self._framework, (self._plan, self._stack), (plan, stack)),
        )


def _axis_change(axis: str, was: str, now: str) -> AxisChange:
    """A change in words, of a stack's settings only those that differ."""
    if axis != "stack":
        return AxisChange(axis, was, now)
    before, after = was.split(","), now.split(",")
    gone = ", ".join(word for word in before if word not in after)
    return AxisChange(axis, gone or "as usual", ", ".join(w for w in after if w not in before))


def _peak_bytes(prediction: Prediction) -> int:
    """Reserved bytes of the fullest device."""
    return max(row.reserved_bytes for row in prediction.memory if row.tier == "hbm")
