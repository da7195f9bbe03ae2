"""Whether an answer is as good as what an expert would run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from published.layer_choices import distinct_strategies, kinds_of_parallelism

from shardwright.spec.plan.plan import Plan

WITHIN = 0.01
"""Fraction of a step's seconds that is no difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A plan and the seconds of its step."""

    plan: Plan
    step_time_s: float

    @property
    def complexity(self) -> tuple[int, int]:
        """Distinct layer strategies, then kinds of parallelism."""
        return len(distinct_strategies(self.plan)), len(kinds_of_parallelism(self.plan))

    @property
    def decisions(self) -> tuple[object, ...]:
        """All but where layers are cut, and devices of stages."""
        schedule, stages = self.plan.program.schedule, self.plan.program.stages
        chunks = len(stages[0].virtual_stages)
        strategies = {tuple(sorted(s.items())) for s in distinct_strategies(self.plan)}
        return len(stages), chunks, schedule.kind, schedule.micro_batch, frozenset(strategies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether an answer stands, and why."""

    passes: bool
    why: str


def judge(answer: Priced, expert: Priced, stack_faults: Sequence[str] = ()) -> Verdict:
    """Hold an answer against the expert's plan.

    It stands if its stack can run it, and it is that plan, or within 1 % of its seconds and no
    more complex, or faster by more than 1 %.

    Args:
        answer: what the planner says.
        expert: what the expert would run, priced alike.
        stack_faults: what the stack cannot run of the answer.
    """
    if stack_faults:
        return Verdict(passes=False, why=f"the stack cannot run: {'; '.join(stack_faults)}")
    if answer.decisions == expert.decisions:
        return Verdict(passes=True, why="the expert's plan")
    change = answer.step_time_s / expert.step_time_s - 1
    if change > WITHIN:
        return Verdict(passes=False, why=f"slower by {change:.1%}")
    if change < -WITHIN:
        return Verdict(passes=True, why=f"faster by {-change:.1%}")
    ours, theirs = answer.complexity, expert.complexity
    counts = f"{_counted(ours)} for {_counted(theirs)}"
    if ours <= theirs:
        return Verdict(passes=True, why=f"{change:+.1%}, {counts}")
    return Verdict(passes=False, why=f"{change:+.1%}, yet {counts}")


def _counted(complexity: tuple[int, int]) -> str:
    strategies, kinds = complexity
    plural = "strategy" if strategies == 1 else "strategies"
    return f"{strategies} {plural} of {kinds} kind{'s' * (kinds != 1)}"
