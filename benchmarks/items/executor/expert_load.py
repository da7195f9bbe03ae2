"""Steps of experts under a load that is not even, beside prices that know it and that do not.

Two nodes of two ranks over held links; tokens go to experts by shares that fall as 1/k. A run
records the trace, which the price reads. Two plans, one with experts on all ranks and one with
them inside a node, change places as the load does or does not say.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import NamedTuple

from generators.plan_cases import Case
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported, unmeasured
from harness.work import Work
from items.executor.throttled_ranks import NODES, RANKS_PER_NODE, TIMEOUT_S, held_plan
from ranks.expert_runs import ExpertSizes, spread
from support.held_links import lacking
from support.held_prices import held_profile, simulated
from support.held_steps import routed_steps

from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.inputs.routing_trace import read_trace
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.expert_load import PowerLoad, RoutedLoad

SEQ_LEN, TOKENS, BLOCKS, EXPONENT = 64, 1024, 2, 1.0
ROUNDS, STEPS = 5, 2
KNOWN_WITHIN, EVEN_BEYOND = 0.15, 0.25
RANKS = NODES * RANKS_PER_NODE
RATES_BYTES_PER_S = (16e6, 4e6)
"""Inside a node and between nodes: slow enough that links are most of the step."""
MOE = Moe(experts=8, topk=2, ffn=32)


class Figures(NamedTuple):
    """Seconds of a plan: measured, priced with its trace, and with an even load."""

    measured_s: float
    known_s: float
    even_s: float


def run(work: Work) -> Evidence:
    """Time both plans, profile the cores, and predict with and without the trace."""
    if reason := lacking():
        return Evidence(rows=[unmeasured("steps over held links", reason)])
    (found,) = work.pieces(["held links"], lambda name: _measure(work))
    figures = {name: Figures(*seconds) for name, seconds in found.items()}
    rows = [row for name, own in figures.items() for row in _rows(name, own)]
    lines = [(name, *(f"{1e3 * s:.0f}" for s in own)) for name, own in figures.items()]
    columns = ("experts", "measured, ms", "priced with the trace, ms", "priced evenly, ms")
    quickest = [min(figures, key=lambda n, i=i: figures[n][i]) for i in range(3)]  # type: ignore[misc]
    rows.append(
        judged(
            "the quicker of two plans",
            f"measured {quickest[0]}, with the trace {quickest[1]}, evenly {quickest[2]}",
            "with the trace as measured",
            quickest[0] == quickest[1],
        )
    )
    return Evidence(rows=rows, tables=[Table(title="steps", columns=columns, rows=lines)])


def _measure(work: Work) -> dict[str, tuple[float, float, float]]:
    plans = {f"ep {ep}": _plan(ep) for ep in (RANKS, RANKS_PER_NODE)}
    work.say("timing steps over held links")
    rounds = work.sized(ROUNDS, 1)
    times, traces = routed_steps(plans, EXPONENT, rounds, STEPS, TIMEOUT_S)
    profile = held_profile(work, RANKS)
    return {
        name: (
            statistics.median(times[name]),
            _priced_s(plan, profile, read_trace(traces[name], "the trace")),
            _priced_s(plan, profile, None),
        )
        for name, plan in plans.items()
    }


def _plan(ep: int) -> Plan:
    sizes = ExpertSizes(blocks=BLOCKS, hidden=128, heads=4, kv_heads=4, vocab=64, moe=MOE)
    samples = RANKS * TOKENS // SEQ_LEN
    case = Case(name="", sizes=sizes, global_batch=samples, micro_batch=samples, seq_len=SEQ_LEN)
    plan = held_plan(spread(case, LayerStrategy(ep=ep)))
    slower = zip(plan.cluster.levels, RATES_BYTES_PER_S, strict=True)
    levels = tuple(replace(level, bandwidth_bytes_per_s=rate) for level, rate in slower)
    return replace(plan, cluster=replace(plan.cluster, levels=levels))


def _priced_s(plan: Plan, profile: MachineProfile, load: PowerLoad | RoutedLoad | None) -> float:
    workloads = {name: replace(w, expert_load=load) for name, w in plan.workloads.items()}
    return simulated(replace(plan, workloads=workloads), profile).step_time_s


def _rows(name: str, figures: Figures) -> list[Row]:
    known, even = (s / figures.measured_s - 1 for s in (figures.known_s, figures.even_s))
    head = f"{name}: step priced"
    if name != f"ep {RANKS}":
        return [reported(f"{head} with the trace and evenly", f"{known:+.1%}, {even:+.1%}")]
    limits = f"within {KNOWN_WITHIN:.0%}", f"beyond {EVEN_BEYOND:.0%}"
    return [
        judged(f"{head} with the trace", f"{known:+.1%}", limits[0], abs(known) <= KNOWN_WITHIN,
               error=known, seconds=figures.known_s, measured_s=figures.measured_s),
        judged(f"{head} evenly", f"{even:+.1%}", limits[1], abs(even) > EVEN_BEYOND,
               error=even, seconds=figures.even_s, measured_s=figures.measured_s),
    ]  # fmt: skip


ITEM = Item(
    name="expert_load",
    shows="Steps under a load of experts that is not even, beside prices with and without its "
    "trace.",
    target="2 x 2 ranks over held links, shares of a recorded trace falling as 1/k: the step "
    "within 15 % of the price that knows it, beyond 25 % of the even one (needs root).",
    run=run,
    reads=(*EVERYTHING, "benchmarks/items/executor/throttled_ranks.py",
           "benchmarks/support/held_links.py", "benchmarks/support/held_prices.py",
           "benchmarks/support/held_steps.py",
           "tests/support/ranks/expert_jobs.py"),
    timed=True,
)  # fmt: skip
