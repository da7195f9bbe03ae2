"""Routing traces that ranks write: the same for every split, and read back as a load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from generators.plan_cases import Case
from ranks.expert_runs import MIXTRAL, spread
from ranks.rank_pools import RankPool

from shardwright.spec.inputs.routing_trace import HEADER, read_trace
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.expert_load import load_violation

STEPS = 2
BASE = Case(name="", sizes=replace(MIXTRAL, blocks=2), ranks=2, micro_batch=2)
JOB = "shardwright.executor.train.job:train"
SPLITS = (
    LayerStrategy(ep=2, recompute="full"),
    LayerStrategy(tp=2, etp=2),
    LayerStrategy(tp=2, sequence_parallel="megatron", ep=2),
)


def trace_of(ranks: RankPool, case: Case, path: Path) -> str:
    payload = {
        "plan": case.plan().to_document(),
        "steps": STEPS,
        "random_tokens": True,
        "follow_bytes": False,
        "routing_trace": str(path),
    }
    ranks.run(JOB, payload)
    return path.read_text()


def test_a_trace_is_the_same_for_every_split_and_comes_back(
    two_ranks: RankPool, tmp_path: Path
) -> None:
    """Recomputed blocks count once, ranks that share their tokens count once."""
    found = [
        trace_of(two_ranks, spread(BASE, strategy), tmp_path / f"{number}.csv")
        for number, strategy in enumerate(SPLITS)
    ]
    first_step = [[line for line in text.splitlines() if line[:2] == "1,"] for text in found]
    assert first_step[0] == first_step[1] == first_step[2]
    assert found[0].splitlines()[0] == HEADER
    model = BASE.sizes.model()
    load = read_trace(found[0], "trace")
    assert load.steps == STEPS
    assert load_violation(model, load) is None
    rows = [[int(cell) for cell in line.split(",")] for line in found[0].splitlines()[1:]]
    assert len(rows) == STEPS * 2 * 4
    tokens = BASE.global_batch * BASE.seq_len * 2
    for step in (1, 2):
        for layer in (1, 2):
            assert sum(n for s, own, _, n in rows if (s, own) == (step, layer)) == tokens


def test_ranks_of_a_pipeline_write_one_trace(four_ranks: RankPool, tmp_path: Path) -> None:
    case = spread(replace(BASE, ranks=4, stages=2), LayerStrategy(ep=2))
    lines = trace_of(four_ranks, case, tmp_path / "trace.csv").splitlines()
    assert {line.split(",")[1] for line in lines[1:]} == {"1", "2"}
