"""Modules from installed packages: described, planned, parallelised, trained in a user's loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from generators.plan_cases import Case, Sizes, sharded
from ranks.rank_pools import RankPool
from runner.doc_blocks import ROOT, blocks, commands

pytest.importorskip("transformers")

import shardwright as sw
from shardwright.executor.user_module.describe import describe
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan

PINS = ("pp=1", "tp=1", "cp=1", "dp=4")


def planned(kind: str, pins: tuple[str, ...]) -> Plan:
    """The plan of a module as it is, on four cores of this machine."""
    from ranks.module_jobs import made

    found = sw.plan(
        made(kind), "local:4", global_batch=8, seq_len=12, pins=(*PINS, *pins), calibration="none"
    )
    return found.plan


@pytest.mark.parametrize("kind", ["llama", "gpt2", "encoder"])
@pytest.mark.parametrize(
    ("pins", "micro_batches"),
    [
        (("shard=zero3", "recompute=full"), 1),
        (("shard=zero1",), 2),
        (("shard=hsdp:2",), 1),
        (("recompute@1=full", "shard=zero2"), 2),
    ],
    ids=["zero3 full", "zero1", "hsdp", "mixed zero2"],
)
def test_a_foreign_module_trains_as_it_does_alone(
    four_ranks: RankPool, kind: str, pins: tuple[str, ...], micro_batches: int
) -> None:
    plan = planned(kind, pins)
    payload = {"plan": plan.to_document(), "kind": kind, "micro_batches": micro_batches}
    for found in four_ranks.run("ranks.module_jobs:own_loop", payload):
        assert found["worst"] <= 5e-6
        assert found["losses"][0] == pytest.approx(found["expected"][0], rel=1e-6)
        assert found["losses"] == pytest.approx(found["expected"], rel=1e-5)


def test_the_lines_of_the_docs_run_as_they_stand(tmp_path: Path) -> None:
    _, _, script, command, _ = blocks(ROOT / "docs" / "running.md")
    assert (script.language, command.language) == ("python", "sh")
    (tmp_path / "train.py").write_text(script.text, encoding="utf-8")
    (words,) = commands(command)
    assert words[0] == "torchrun"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(losses) == 10
    assert losses[0] == pytest.approx(5.77, abs=0.1)  # ln 320: nothing is known yet
    assert losses[-1] < losses[0] - 0.4


def test_what_was_read_off_torchs_encoder() -> None:
    from ranks.module_jobs import HIDDEN, LAYERS, VOCAB, made

    spec = describe(made("encoder"))
    assert spec.block_count == LAYERS
    assert (spec.vocab, spec.hidden) == (VOCAB, HIDDEN)
    (block,) = [layer for layer in spec.kinds() if layer.kind == "block"]
    assert (block.attention.heads, block.attention.head_dim, block.attention.mask) == (4, 8, "full")
    assert (block.mlp.ffn, block.mlp.activation, block.norm) == (64, "gelu", "layernorm")


def test_a_module_that_is_not_understood_is_refused() -> None:
    from torch import nn

    with pytest.raises(InputError, match="list of layers"):
        describe(nn.Linear(4, 4))
    with pytest.raises(InputError, match="attention, then a perceptron"):
        describe(nn.Sequential(nn.Embedding(8, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 8))))


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (Case(name="tp", sizes=Sizes(blocks=3), strategies=sharded("zero0", 2, tp=2)), "tp 2"),
        (Case(name="pp", sizes=Sizes(blocks=3), stages=2), "pp"),
        (Case(name="blocks", sizes=Sizes(blocks=4)), "3, the layers of model.layers"),
        (Case(name="again", sizes=Sizes(blocks=3),
              strategies=sharded("zero0", 4, recompute="selective")), "recompute selective"),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)  # fmt: skip
def test_what_a_foreign_module_cannot_follow_is_named(
    four_ranks: RankPool, case: Any, says: str
) -> None:
    payload = {"plan": case.plan().to_document(), "kind": "llama", "micro_batches": 1}
    with pytest.raises(Exception, match=says):
        four_ranks.run("ranks.module_jobs:own_loop", payload)
