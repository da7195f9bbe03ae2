"""Gradients sent before reductions against after them, over links held to a rate.

Two stages of two ranks, each rank a node of its own (``support.held_links``). Stages compute at
different times where micro-batches are few, so that four ranks need little more than two cores.
"""

from __future__ import annotations

from dataclasses import replace

from generators.plan_cases import Case, Sizes
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, unmeasured
from harness.work import Work
from support.held_links import answered, held_levels, lacking

from shardwright.api.cli.profile import DEFAULT_BUDGET_S
from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.profiler.sweep import QUICK_BUDGET_S, measure
from shardwright.spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel, MemoryTiers
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.plan.plan import Plan

BYTES_PER_S = 12.5e6
CORES, NODES = 2, 4
ROUNDS, STEPS = 4, 2
TIMEOUT_S = 420.0
LEAST_GAIN, LARGEST_ERROR, LEAST_SHARE = 0.10, 0.15, 0.30
MEMORY_BYTES = 4 * 2**30
ONE = Case(
    name="one block a stage",
    sizes=Sizes(blocks=2, hidden=512, heads=8, kv_heads=8, ffn=2048, vocab=256),
    stages=2,
    global_batch=8,
    micro_batch=4,
    seq_len=128,
)
CASES = (ONE, replace(ONE, name="two blocks a stage", sizes=replace(ONE.sizes, blocks=4)))


def held_cluster() -> ClusterSpec:
    """Nodes of one core each on Ethernet, typed with the held rate."""
    group = DeviceGroup(
        name="cpu",
        device="cpu",
        node="local",
        nodes=NODES,
        devices_per_node=1,
        memory=MemoryTiers(hbm_bytes=MEMORY_BYTES),
    )
    inner = LinkLevel(level="intra_node", group_size=1, fabric="loopback")
    outer = LinkLevel(
        level="intra_rack", group_size=NODES, fabric="1x10G-ETH", bandwidth_bytes_per_s=BYTES_PER_S
    )
    return ClusterSpec(groups=(group,), levels=(inner, outer))


def held_plan(case: Case) -> Plan:
    """A case on the held links."""
    plan = replace(case.plan(), cluster=held_cluster())
    if violations := plan.check():
        raise ValueError(str(violations[0]))
    return plan


def run(work: Work) -> Evidence:
    """Time both orders in turn, profile the cores, and predict."""
    if reason := lacking():
        return Evidence(rows=[unmeasured("messages before reductions", reason)])
    (cases,) = work.pieces(["held links"], lambda name: _measure(work))
    rows = [row for name, figures in cases.items() for row in _rows(name, **figures)]
    lines = [
        (
            name,
            *(f"{figures[key] * 1e3:.0f}" for key in ("early_s", "late_s", "predicted_s")),
            f"{figures['share']:.0%}",
        )
        for name, figures in cases.items()
    ]
    columns = ("plan", "before, ms", "after, ms", "predicted, ms", "reductions in the step")
    title = f"messages before and after reductions; links of {BYTES_PER_S / 1e6:g} MB/s each way"
    return Evidence(rows=rows, tables=[Table(title=title, columns=columns, rows=lines)])


def _measure(work: Work) -> dict[str, dict[str, float]]:
    """Least step of each case in both orders, its predicted one, and the reductions' part."""
    plans = {case.name: held_plan(case) for case in CASES}
    work.say("timing steps over held links")
    times = _times(work, plans)
    work.say("profiling")
    profile = measure(work.sized(DEFAULT_BUDGET_S, QUICK_BUDGET_S), CORES)
    found = {}
    for name, plan in plans.items():
        predicted_s, share = _predicted(plan, profile)
        least_s = {f"{order}_s": min(seconds) for order, seconds in times[name].items()}
        found[name] = {**least_s, "predicted_s": predicted_s, "share": share}
    return found


def _times(work: Work, plans: dict[str, Plan]) -> dict[str, dict[str, list[float]]]:
    asked = {
        "plans": {name: plan.to_document() for name, plan in plans.items()},
        "rounds": work.sized(ROUNDS, 1),
        "steps": STEPS,
    }
    levels = held_levels(held_cluster())
    found: dict[str, dict[str, list[float]]]
    found = answered(levels, "support.late_messages", asked, TIMEOUT_S)
    return found


def _predicted(plan: Plan, profile: MachineProfile | None) -> tuple[float, float]:
    """Simulated seconds of a step, and the part of them that is reductions."""
    machine = Machine(plan.cluster, profile)
    simulation = Simulator.for_plan(plan, machine, stack("shardwright", on_cores=True)).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation.step_time_s, breakdown(simulation)["exposed_dp"] / simulation.step_time_s


def _rows(name: str, early_s: float, late_s: float, predicted_s: float, share: float) -> list[Row]:
    gain, error = 1 - early_s / late_s, predicted_s / early_s - 1
    return [
        judged(
            f"{name}: step with messages before reductions",
            f"{gain:.1%} shorter than with messages after them",
            f"at least {LEAST_GAIN:.0%} shorter",
            gain >= LEAST_GAIN,
            gain=gain,
            early_s=early_s,
            late_s=late_s,
        ),
        judged(
            f"{name}: its prediction",
            f"{error:+.1%}",
            f"within {LARGEST_ERROR:.0%}",
            abs(error) <= LARGEST_ERROR,
            error=error,
            predicted_s=predicted_s,
        ),
        judged(
            f"{name}: reductions in the predicted step",
            f"{share:.0%}",
            f"at least {LEAST_SHARE:.0%}",
            share >= LEAST_SHARE,
            share=share,
        ),
    ]


ITEM = Item(
    name="message_order",
    shows="Gradients sent before reductions against after them, over links held to a rate.",
    target=(
        "2 x 2 ranks, reductions at least 30 % of the step: at least 10 % shorter than with "
        "messages after the reductions, and within 15 % of its prediction (needs root)."
    ),
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/held_links.py", "benchmarks/support/late_messages.py",
           "tests/support/generators/plan_cases.py"),
    timed=True,
)  # fmt: skip
