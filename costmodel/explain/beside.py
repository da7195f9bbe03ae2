"""Work of techniques beside the computation, and how much of it shows.

Seconds of a step on the critical stage, by technique: on its lanes, undisturbed, and in line.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ..pricing.pricer import Pricer
from ..simulation.simulator import Simulation
from ..symbolic.lane_work import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideWork:
    """A technique's work on lanes in a step, in seconds.

    ``lanes``: of each lane alone; ``in_line_s``: of what it adds to the computation itself;
    ``shown_s``: by which its lanes lengthen the passes.
    """

    technique: str
    lanes: dict[Lane, float]
    in_line_s: float
    shown_s: float

    @property
    def hidden(self) -> float:
        """Share of the lanes' seconds that computation hides."""
        return 1 - self.shown_s / sum(self.lanes.values())


def beside_work(simulation: Simulation, pricer: Pricer, microbatches: int) -> list[BesideWork]:
    """Work on lanes of each technique on the critical stage, in order of their names.

    Args:
        simulation: the simulated step.
        pricer: of its machine and stack.
        microbatches: of the step.
    """
    run = simulation.critical
    lanes: dict[str, dict[Lane, float]] = defaultdict(lambda: defaultdict(float))
    in_line: dict[str, float] = defaultdict(float)
    for layer in (entry.lowered for chunk in run.classes[0].chunks for entry in chunk.layers):
        for work in (work for works in layer.lanes for work in works if not pricer.in_line(work)):
            lanes[work.technique][work.lane] += pricer.lane_s(work) * microbatches
        for entry in (*layer.forward.entries, *layer.backward.entries):
            if entry.technique:
                in_line[entry.technique] += sum(pricer.split((entry.work,))) * microbatches
    shown_s = run.technique_s()
    return [
        BesideWork(
            technique=name,
            lanes=dict(sorted(seconds.items())),
            in_line_s=in_line[name],
            shown_s=_between(shown_s.get(name, 0.0) - in_line[name], sum(seconds.values())),
        )
        for name, seconds in sorted(lanes.items())
        if sum(seconds.values())
    ]


def _between(seconds: float, most_s: float) -> float:
    return min(max(seconds, 0.0), most_s)
