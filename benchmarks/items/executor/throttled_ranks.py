"""Techniques on ranks whose links are held to the rates of their cluster, beside their prices.

Two nodes of two ranks; links inside a node are faster than those between nodes. Every technique
that runs has a plan here, or a reason why not. Computation is priced from as many ranks at once, of
one thread each, as run the plans.
"""

from __future__ import annotations

from dataclasses import replace

from generators.plan_cases import Case, Sizes
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, unmeasured
from harness.work import Work
from ranks.expert_runs import ExpertSizes, spread
from support.held_links import lacking
from support.held_prices import placed, timed_and_priced

from shardwright.spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel, MemoryTiers
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.activation_swap import ActivationSwap
from shardwright.spec.techniques.cpu_offload import CpuOffload
from shardwright.spec.techniques.expert_pipelining import ExpertPipelining
from shardwright.spec.techniques.quantized_communication import QuantizedCommunication
from shardwright.spec.techniques.tp_overlap import TensorParallelOverlap

NODES, RANKS_PER_NODE = 2, 2
INNER_BYTES_PER_S, OUTER_BYTES_PER_S = 80e6, 20e6
MEMORY_BYTES = 4 * 2**30
ROUNDS, STEPS = 3, 2
TIMEOUT_S = 420.0
LARGEST_ERROR, LEAST_EXPOSED = 0.15, 0.3
SHARDED = LayerStrategy(shard=Sharding(parameters=4, gradients=4, optimizer=4))
PAIRS = LayerStrategy(shard=Sharding(parameters=2, gradients=2, optimizer=2))
HALF = ActivationSwap(share=0.5)
SDP4BIT = QuantizedCommunication(node_ranks=RANKS_PER_NODE)
PLAIN = Case(
    name="sharded over all ranks",
    sizes=Sizes(blocks=2, hidden=256, heads=8, kv_heads=8, ffn=768, vocab=256),
    strategies=SHARDED,
    global_batch=16,
    micro_batch=8,
    seq_len=128,
)
WHOLE = LayerStrategy(shard=Sharding(gradients=4, optimizer=4))
SHARDS = LayerStrategy(tp=2, sequence_parallel="megatron")
CASES = (
    PLAIN,
    replace(PLAIN, name="sharded inside nodes, summed between them", strategies=PAIRS),
    *(
        replace(PLAIN, name=name, strategies=with_value(strategy, technique, value))
        for name, strategy, technique, value in (
            ("optimizer states on the host", SHARDED, "cpu_offload", CpuOffload()),
            ("half of the activations on the host", SHARDED, "activation_swap", HALF),
            ("4 and 8 bits on the wire", WHOLE, "quantized_communication", SDP4BIT),
            ("products in chunks", SHARDS, "tp_overlap", TensorParallelOverlap(chunks=4)),
        )
    ),
)
EXPERTS = ExpertSizes(
    blocks=2,
    hidden=256,
    heads=8,
    kv_heads=8,
    vocab=256,
    moe=Moe(experts=4, topk=2, ffn=256),
)


def _in_chunks(case: Case) -> Case:
    """The case with experts on all ranks, their rows in two chunks."""
    split = spread(replace(case, sizes=EXPERTS), LayerStrategy(ep=4))
    value = ExpertPipelining()
    strategies = tuple(
        with_value(strategy, "expert_pipelining", value) if strategy.ep > 1 else strategy
        for strategy in split.layer_strategies()
    )
    return replace(split, name="experts in chunks", strategies=strategies)


CASES = (*CASES, _in_chunks(PLAIN))
WITHOUT = {
    "compile": "it changes kernels alone, which no link slows",
    "address_plan": "it moves nothing between ranks",
    "gradient_windows": "what windows gain over sums at the end is in expert_pipelining_ranks",
}
"""Techniques that run and have no plan here, and why."""


def held_cluster() -> ClusterSpec:
    """Two nodes of two cores, typed with the held rates."""
    group = DeviceGroup(
        name="cpu",
        device="cpu",
        node="local",
        nodes=NODES,
        devices_per_node=RANKS_PER_NODE,
        memory=MemoryTiers(hbm_bytes=MEMORY_BYTES, host_bytes=MEMORY_BYTES),
    )
    inner = LinkLevel(
        level="intra_node",
        group_size=RANKS_PER_NODE,
        fabric="1x10G-ETH",
        bandwidth_bytes_per_s=INNER_BYTES_PER_S,
    )
    outer = LinkLevel(
        level="intra_rack",
        group_size=NODES * RANKS_PER_NODE,
        fabric="1x10G-ETH",
        bandwidth_bytes_per_s=OUTER_BYTES_PER_S,
    )
    return ClusterSpec(groups=(group,), levels=(inner, outer))


def held_plan(case: Case) -> Plan:
    """A case on the held links."""
    return placed(case.plan(), held_cluster())


def run(work: Work) -> Evidence:
    """Time each plan, profile the cores, and predict."""
    if reason := lacking():
        return Evidence(rows=[unmeasured("steps over held links", reason)])
    (found,) = work.pieces(["held links"], lambda name: _measure(work))
    rows = [row for name, figures in found.items() for row in _rows(name, **figures)]
    lines = [
        (
            name,
            f"{figures['measured_s'] * 1e3:.0f}",
            f"{figures['predicted_s'] * 1e3:.0f}",
            f"{figures['exposed']:.0%}",
        )
        for name, figures in found.items()
    ]
    inner, outer = INNER_BYTES_PER_S / 1e6, OUTER_BYTES_PER_S / 1e6
    title = f"steps; links of {inner:g} MB/s inside a node, {outer:g} between nodes, each way"
    columns = ("plan", "measured, ms", "predicted, ms", "exposed communication")
    return Evidence(rows=rows, tables=[Table(title=title, columns=columns, rows=lines)])


def _measure(work: Work) -> dict[str, dict[str, float]]:
    plans = {case.name: held_plan(case) for case in CASES}
    return timed_and_priced(work, plans, ROUNDS, STEPS, TIMEOUT_S)


def _rows(name: str, measured_s: float, predicted_s: float, exposed: float) -> list[Row]:
    error = predicted_s / measured_s - 1
    return [
        judged(
            f"{name}: predicted step",
            f"{error:+.1%}",
            f"within {LARGEST_ERROR:.0%}",
            abs(error) <= LARGEST_ERROR,
            error=error,
            predicted_s=predicted_s,
            measured_s=measured_s,
        ),
        judged(
            f"{name}: exposed communication in the predicted step",
            f"{exposed:.0%}",
            f"at least {LEAST_EXPOSED:.0%}",
            exposed >= LEAST_EXPOSED,
            exposed=exposed,
        ),
    ]


ITEM = Item(
    name="throttled_ranks",
    shows="Steps of each technique over held links beside their prices.",
    target=(
        "2 x 2 ranks, links of two rates: each step within 15 % of its prediction, at least 30 % "
        "of it communication that nothing hides (needs root)."
    ),
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/held_links.py", "benchmarks/support/held_prices.py",
           "benchmarks/support/held_steps.py",
           "tests/support/generators/plan_cases.py"),
    timed=True,
)  # fmt: skip
