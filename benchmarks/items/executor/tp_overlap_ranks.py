"""Products in chunks over held links: the chosen counts beside the best measured.

One node of two or four ranks. Links are held to rates at which the collectives of a plan without
chunks take half, once and twice the seconds of its products, by its price. Ranks share cores, of
which a kernel timed alone knows little: prices of kernels are scaled to a step of the plan without
chunks by the same ranks, over links that take little of it.
"""

from __future__ import annotations

import statistics
from typing import Any

from generators.plan_cases import Case, Sizes
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, unmeasured
from harness.work import Work
from support.held_choices import chosen_row, error_row, least
from support.held_links import lacking
from support.held_prices import held_profile, placed, simulated
from support.held_steps import held_steps
from support.slow_ranks import slowed_profile

from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel, MemoryTiers
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.tp_overlap import CHUNKS, NAME, from_word

SIZES = Sizes(blocks=1, hidden=512, heads=8, kv_heads=8, ffn=1536, vocab=64)
SEQ_LEN, SAMPLES = 128, 4
NONE = "none"
WORDS = (NONE, *(f"chunked:{chunks}" for chunks in CHUNKS))
DEGREES, QUICK_DEGREES = (2, 4), (2,)
RATIOS, QUICK_RATIOS = (0.5, 1.0, 2.0), (1.0,)
"""Seconds of collectives over those of products."""
QUICK_BYTES_PER_S = 400e6
"""Of links that take little of a step."""
MEMORY_BYTES = 4 * 2**30
ROUNDS, STEPS = 4, 2
TIMEOUT_S = 300.0
Seconds = dict[str, float]
"""By word."""


def run(work: Work) -> Evidence:
    """Time the counts of each setting, each on links of its own, and predict."""
    if reason := lacking():
        return Evidence(rows=[unmeasured("steps over held links", reason)])
    degrees = QUICK_DEGREES if work.quick else DEGREES
    pieces = work.pieces([f"tp {degree}" for degree in degrees], lambda key: _measure(work, key))
    rows, lines = list[Row](), list[tuple[str, ...]]()
    for found in pieces:
        for name, one in found.items():
            predicted, measured = one["predicted_s"], one["measured_s"]
            rows += _rows(name, predicted, measured)
            for word in measured:
                figures = (f"{1e3 * side[word]:.0f}" for side in (measured, predicted))
                error = f"{predicted[word] / measured[word] - 1:+.1%}"
                lines.append((name, f"{one['rate'] / 1e6:.1f}", word, *figures, error))
    columns = ("setting", "MB/s", "products", "measured, ms", "predicted, ms", "error")
    return Evidence(rows=rows, tables=[Table(title="steps", columns=columns, rows=lines)])


def _measure(work: Work, key: str) -> dict[str, dict[str, Any]]:
    """Rate, and median and predicted seconds of each word, by setting of a degree."""
    degree = int(key.split()[1])
    profile = _paced(work, degree, held_profile(work, degree))
    return {
        f"{key}, {ratio:g}": _timed(work, degree, ratio, profile)
        for ratio in (QUICK_RATIOS if work.quick else RATIOS)
    }


def _paced(work: Work, degree: int, profile: MachineProfile) -> MachineProfile:
    """The profile with kernels as slow as in a step of all ranks at once."""
    work.say(f"timing steps: tp {degree}, quick links")
    plan = _plan(degree, QUICK_BYTES_PER_S, NONE)
    times = held_steps({NONE: plan}, work.sized(ROUNDS, 1), STEPS, TIMEOUT_S)
    terms = breakdown(simulated(plan, profile))
    own_s = sum(terms.values()) - terms["exposed_tp"]
    return slowed_profile(profile, (statistics.median(times[NONE]) - terms["exposed_tp"]) / own_s)


def _timed(work: Work, degree: int, ratio: float, profile: MachineProfile) -> dict[str, Any]:
    rate = _rate(degree, ratio, profile)
    plans = {word: _plan(degree, rate, word) for word in WORDS}
    work.say(f"timing steps: tp {degree}, collectives {ratio:g} of products")
    times = held_steps(plans, work.sized(ROUNDS, 1), STEPS, TIMEOUT_S)
    return {
        "rate": rate,
        "measured_s": {word: statistics.median(found) for word, found in times.items()},
        "predicted_s": {word: simulated(plan, profile).step_time_s for word, plan in plans.items()},
    }


def _rate(degree: int, ratio: float, profile: MachineProfile) -> float:
    """Bytes a second at which collectives take so much of the products' seconds."""
    terms = breakdown(simulated(_plan(degree, QUICK_BYTES_PER_S, NONE), profile))
    return QUICK_BYTES_PER_S * terms["exposed_tp"] / (ratio * terms["matmul"])


def _plan(degree: int, rate: float, word: str) -> Plan:
    """The block's plan by ``degree`` ranks on one node, its products cut as the word says."""
    strategy = LayerStrategy(tp=degree, sequence_parallel="megatron")
    case = Case(
        name=word,
        sizes=SIZES,
        ranks=degree,
        strategies=with_value(strategy, NAME, from_word(word)),
        global_batch=SAMPLES,
        micro_batch=SAMPLES,
        seq_len=SEQ_LEN,
    )
    return placed(case.plan(), _cluster(degree, rate))


def _cluster(degree: int, rate: float) -> ClusterSpec:
    group = DeviceGroup(
        name="cpu", device="cpu", node="local", nodes=1, devices_per_node=degree,
        memory=MemoryTiers(hbm_bytes=MEMORY_BYTES, host_bytes=MEMORY_BYTES),
    )  # fmt: skip
    level = LinkLevel(
        level="intra_node", group_size=degree, fabric="1x10G-ETH", bandwidth_bytes_per_s=rate
    )
    return ClusterSpec(groups=(group,), levels=(level,))


def _rows(name: str, predicted: Seconds, measured: Seconds) -> list[Row]:
    chosen = least(predicted)
    faster = measured[NONE] / measured[chosen] - 1
    return [
        chosen_row(f"{name}: chosen count beside the best", predicted, measured),
        judged(
            f"{name}: the chosen products beside whole ones",
            f"{chosen}: {faster:+.1%}" if chosen != NONE else "whole ones are chosen",
            "faster, if in chunks",
            chosen == NONE or faster > 0,
            faster=faster,
        ),
        error_row(f"{name}: steps", predicted, measured),
    ]


ITEM = Item(
    name="tp_overlap_ranks",
    shows="Products in chunks over held links: chosen counts beside measured ones.",
    target="tp 2 and 4, collectives at 0.5, 1 and 2 of products: steps within 15 % of their "
    "predictions, the chosen count within 5 % of the best, chunks faster where chosen (needs "
    "root).",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/held_choices.py", "benchmarks/support/held_links.py",
           "benchmarks/support/held_prices.py", "benchmarks/support/held_steps.py",
           "benchmarks/support/slow_ranks.py", "tests/support/generators/plan_cases.py"),
    timed=True,
)  # fmt: skip
