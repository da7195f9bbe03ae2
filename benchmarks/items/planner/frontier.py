"""Three levels of sharding on Frontier, beside ZeRO-3 and ZeRO++.

arXiv:2501.04266, abstract: a GPT of 20B, up to 384 dies of MI250X. Assumed: the shape of
GPT-NeoX-20B, micro-batches of one sample, four of them a step, recomputation of whole layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from harness.shapes import PLANNING, Evidence, Item, Table, judged, reported
from harness.work import Work

import shardwright as sw
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.plan.plan import Plan

NODES = (2, 4, 8, 16, 32, 48)
DIES, MICRO_BATCHES, SEQ_LEN = 8, 4, 2048
BETWEEN_NODES = "intra_rack"
MODEL: dict[str, Any] = {
    "name": "gpt-neox-20b, assumed", "layers": 44, "hidden": 6144, "ffn": 24576, "heads": 64,
    "kv_heads": 64, "head_dim": 96, "vocab": 50432, "norm": "layernorm", "activation": "gelu",
    "position": "rope", "tie_embeddings": False,
}  # fmt: skip
OVER_ZERO3, OVER_ZEROPP, SCALING, WITHIN = 1.405, 1.707, 0.94, 0.20
HALVINGS = 40


class Steps(NamedTuple):
    """Seconds of a step, or what prices them, of each sharding."""

    zero3: Any
    zeropp: Any
    levels: Any

    def over_zero3(self) -> float:
        """Speed of ZeRO++ over that of ZeRO-3."""
        return float(self.zero3 / self.zeropp)

    def over_zeropp(self) -> float:
        """Speed of three levels over that of ZeRO++."""
        return float(self.zeropp / self.levels)


def simulated(nodes: int, shard: str, **techniques: str) -> sw.SimulationHandle:
    """A plan of a sharding, with its prediction."""
    dies = nodes * DIES
    settings: dict[str, Any] = {
        "global_batch": dies * MICRO_BATCHES, "seq_len": SEQ_LEN, "dp": dies, "micro_batch": 1,
        "shard": shard, "recompute": "full", "calibration": "none", "techniques": techniques,
    }  # fmt: skip
    return sw.simulate(MODEL, f"{nodes}x{DIES}xMI250X", **settings)


def shardings(nodes: int) -> Steps:
    """The three shardings on so many nodes."""
    return Steps(
        simulated(nodes, "zero3"),
        simulated(nodes, "hpz", quantized_communication="zero++"),
        simulated(nodes, f"2/{DIES}/{nodes * DIES}"),
    )


def seconds(handles: Steps) -> Steps:
    """Predicted seconds, at the catalogue's rates."""
    return Steps(*(handle.report.prediction.step_time_s for handle in handles))


def seconds_at(plans: Steps, rate: float) -> Steps:
    """Predicted seconds where nodes are joined at ``rate`` bytes a second a die."""
    return Steps(*(_at(plan, rate) for plan in plans))


def _at(plan: Plan, rate: float) -> float:
    levels = tuple(
        replace(level, bandwidth_bytes_per_s=rate) if level.level == BETWEEN_NODES else level
        for level in plan.cluster.levels
    )
    slower = replace(plan, cluster=replace(plan.cluster, levels=levels))
    simulator = Simulator.for_plan(slower, Machine(slower.cluster), stack("shardwright"))
    return simulator.run(slower).step_time_s


def rate_of(plans: Steps, ratio: float) -> float:
    """The rate between nodes at which ZeRO++ gains ``ratio`` over ZeRO-3, by bisection.

    The gain falls with the rate between the two ends.
    """
    low, high = 1e9, 12.5e9
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if seconds_at(plans, middle).over_zero3() > ratio:
            low = middle
        else:
            high = middle
    return high


def run(work: Work) -> Evidence:
    """Predict the shardings, and the rate that the published gain would take."""
    handles = {nodes: shardings(nodes) for nodes in NODES}
    steps = {nodes: seconds(found) for nodes, found in handles.items()}
    last = NODES[-1]
    plans = Steps(*(handle.plan for handle in handles[last]))
    rate = rate_of(plans, OVER_ZERO3)
    slowed = seconds_at(plans, rate)
    scaling = steps[NODES[0]].levels / steps[last].levels
    gain = slowed.over_zeropp()
    rows = [
        reported(
            f"{last * DIES} dies, rates of the catalogue: ZeRO++ over ZeRO-3, 3 levels over ZeRO++",
            f"{steps[last].over_zero3():.3f}, {steps[last].over_zeropp():.3f}; published "
            f"{OVER_ZERO3}, {OVER_ZEROPP}",
        ),
        reported(
            f"scaling of 3 levels from {NODES[0] * DIES} to {last * DIES} dies",
            f"{scaling:.3f}; published {SCALING}",
        ),
        reported(
            f"rate between nodes at which ZeRO++ gains {OVER_ZERO3}",
            f"{rate / 1e9:.2f} GB/s a die; the catalogue says 12.5 GB/s",
        ),
        judged(
            "3 levels over ZeRO++ at that rate",
            f"{gain:.3f}: {gain / OVER_ZEROPP - 1:+.1%}",
            f"within {WITHIN:.0%} of {OVER_ZEROPP}",
            abs(gain / OVER_ZEROPP - 1) <= WITHIN,
            gain=gain,
        ),
    ]
    columns = ("dies", "ZeRO-3, s", "ZeRO++, s", "3 levels, s", "ZeRO++ gains", "3 levels gain")
    lines = [
        (str(nodes * DIES), *(f"{value:.2f}" for value in found),
         f"{found.over_zero3():.3f}", f"{found.over_zeropp():.3f}")
        for nodes, found in steps.items()
    ]  # fmt: skip
    table = Table(title="A step, predicted", columns=columns, rows=lines)
    return Evidence(rows=rows, tables=[table])


ITEM = Item(
    name="frontier",
    shows="Three levels of sharding on Frontier beside ZeRO-3 and ZeRO++, predicted.",
    target="At the rate that gives ZeRO++ its published gain, 3 levels' within 20 %.",
    run=run,
    reads=PLANNING,
)
