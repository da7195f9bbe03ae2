"""Steps of which the literature says how long they take and what they hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from generators.plan_cases import Case, Sizes
from published.wrong_pricers import Free

from shardwright.costmodel.lowering.chunk import StageChunk
from shardwright.costmodel.lowering.stage_passes import PassKind
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.pass_time import PASS_TERMS, PassTime
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.plan.plan import Plan
from shardwright.spec.schedules.stage_order import SCHEDULE_KINDS, V_KINDS, ScheduleKind


@dataclass(frozen=True, kw_only=True)
class PassSeconds:
    """Seconds of the passes of one chunk: forward, and the two parts of a backward."""

    forward: float
    input: float
    weight: float

    @property
    def work_s(self) -> float:
        return self.forward + self.input + self.weight


def bubble_s(kind: ScheduleKind, stages: int, t: PassSeconds) -> float | None:
    """Idle seconds of a step, between its start and the norm that all stages wait for.

    GPipe, 1F1B, interleaved: (p - 1)(F + B + W) (Huang et al., 2019; Narayanan et al., 2021b,
    section 2.2, with the times of a chunk). Zero bubble: (p - 1)(F + B - W) (Qi et al., 2024,
    table 1). ZBV with F = B = W leaves no gap between passes (Qi et al., 2024, V, section 4),
    so only the time until the last stage starts, (p - 1)F. DualPipe with F = B:
    (P/2 - 1)(F&B + B' - 3W) with P = 2p, B' = B + W and F&B = F + B' (DeepSeek-V3, 2024, table
    2). None where there is no closed form.
    """
    if kind in SCHEDULE_KINDS:
        return (stages - 1) * t.work_s
    if kind == "zero_bubble":
        return (stages - 1) * (t.forward + t.input - t.weight)
    if kind == "zbv":
        return (stages - 1) * t.forward if t.forward == t.input == t.weight else None
    whole_s = t.input + t.weight
    together_s = t.forward + whole_s
    return (stages - 1) * (together_s + whole_s - 3 * t.weight) if t.forward == t.input else None


class _Fixed(Simulator):
    """Passes take the same time on every chunk; the update and the host take none."""

    times = PassSeconds(forward=1.0, input=1.0, weight=1.0)

    def pass_time(self, chunk: StageChunk, kind: PassKind, group: str, link_span: int) -> PassTime:
        t = self.times
        parts = {"whole": t.input + t.weight, "input": t.input, "weight": t.weight}
        seconds = t.forward if kind.forward else parts[kind.part]
        return PassTime(seconds, [seconds, *[0.0] * (len(PASS_TERMS) - 1)], 0.0, 0.0)


def fixed_step_s(plan: Plan, times: PassSeconds) -> float:
    """Simulated seconds of the step when only passes take time."""
    chosen = replace(stack("shardwright"), step_s=0.0, launch_s=0.0)
    pricer = Free(Machine(plan.cluster), chosen)
    simulator = _Fixed(Simulator.for_plan(plan, pricer.machine, chosen).lowering, pricer)
    simulator.times = times
    simulation = simulator.run(plan)
    assert simulation is not None
    return simulation.step_time_s


def usual_chunks(kind: ScheduleKind) -> int:
    """Chunks a stage: two in a V and, here, in an interleaved schedule."""
    return 2 if kind in (*V_KINDS, "interleaved") else 1


def pipeline(kind: ScheduleKind, stages: int, batches: int) -> Plan:
    """A small plan with one stage a rank and one sample a micro-batch."""
    chunks = usual_chunks(kind)
    case = Case(
        name="schedule",
        sizes=Sizes(blocks=stages * chunks),
        ranks=stages,
        stages=stages,
        chunks=chunks,
        kind=kind,
        global_batch=batches,
        micro_batch=1,
    )
    return case.plan()


def activation_bytes(kind: ScheduleKind, stages: int, name: str) -> list[int]:
    """Of every stage at its fullest moment; all have as many blocks, the ends are small."""
    chunks = usual_chunks(kind)
    size = 8 // chunks
    case = Case(
        name="memory",
        sizes=Sizes(blocks=8 * stages, hidden=128, heads=4, kv_heads=4, ffn=512),
        ranks=stages,
        stages=stages,
        chunks=chunks,
        kind=kind,
        global_batch=4 * stages,
        micro_batch=1,
        seq_len=64,
        boundaries=tuple(1 + size * number for number in range(1, stages * chunks)),
    )
    plan = case.plan()
    simulation = Simulator.for_plan(plan, Machine(plan.cluster), stack(name)).run(plan)
    assert simulation is not None
    return [row.by["activations"] for row in simulation.memory]


def published_share(kind: ScheduleKind, stages: int) -> float:
    """Activations of every stage in units of 1F1B's worst stage, which holds p micro-batches.

    ZB-H1 needs as much (Qi et al., 2024, section 2.2), ZBV too, on every stage (Qi et al., 2024,
    V, section 4), DualPipe P + 1 of P chunks (DeepSeek-V3, 2024, table 2; P = 2p).
    """
    return {"zero_bubble": 1.0, "zbv": 1.0, "dualpipe": 1 + 1 / (2 * stages)}[kind]
