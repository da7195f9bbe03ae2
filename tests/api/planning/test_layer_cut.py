"""``plan simulate`` with stages of unlike numbers of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.planning.layer_cut import LayerCut, chunk_blocks, nearest_pipeline
from shardwright.api.planning.uniform_plan import UniformStrategy
from shardwright.spec.errors import InputError

Plan = Callable[..., Any]
GPT2 = ("--model", "gpt2", "--cluster", "4xH100", "--global-batch", "16", "--seq-len", "1024")
"""12 blocks, and an embedding and a head that join the ends."""


def layers_of(report: Any) -> list[list[tuple[int, int]]]:
    stages = report["plan"]["programs"][0]["stages"]
    return [
        [(chunk[0]["layers"][1], chunk[-1]["layers"][2]) for chunk in stage["virtual_stages"]]
        for stage in stages
    ]


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        (("--layers-per-stage", "2,3,4,3"), [(0, 2), (3, 5), (6, 9), (10, 13)]),
        (("--layers-per-stage", "0,5,5,2"), [(0, 0), (1, 5), (6, 10), (11, 13)]),
        (("--pp", "4", "--first-stage-layers", "3"), [(0, 3), (4, 6), (7, 9), (10, 13)]),
        (
            ("--pp", "4", "--first-stage-layers", "2", "--last-stage-layers", "0"),
            [(0, 2), (3, 7), (8, 12), (13, 13)],
        ),
    ],
)
def test_stages_hold_the_layers_that_are_typed(
    plan: Plan, flags: tuple[str, ...], want: list[tuple[int, int]]
) -> None:
    report = plan("simulate", *GPT2, *flags, "--json", "-").document
    assert layers_of(report) == [[stage] for stage in want]


def test_an_even_cut_that_is_typed_is_the_usual_plan(plan: Plan) -> None:
    typed = plan("simulate", *GPT2, "--layers-per-stage", "3,3,3,3", "--json", "-").document
    usual = plan("simulate", *GPT2, "--pp", "4", "--json", "-").document
    assert typed["plan_hash"] == usual["plan_hash"]


def test_chunks_share_a_stage_evenly(plan: Plan) -> None:
    flags = ("--vpp", "2", "--layers-per-stage", "2,4,4,2", "--json", "-")
    report = plan("simulate", *GPT2, *flags).document
    assert layers_of(report)[1] == [(2, 3), (8, 9)]
    assert chunk_blocks((2, 4), 2, "zbv") == (1, 2, 2, 1)


def test_every_way_in_takes_it(plan: Plan) -> None:
    shown = plan("simulate", *GPT2, "--layers-per-stage", "2,3,4,3", "--json", "-").document
    for counts in ("2,3,4,3", [2, 3, 4, 3]):
        made = sw.simulate("gpt2", "4xH100", global_batch=16, seq_len=1024, layers_per_stage=counts)
        assert made.plan.hash == shown["plan_hash"]
    with pytest.raises(InputError, match=r"^layers_per_stage: "):
        sw.simulate("gpt2", "4xH100", global_batch=16, seq_len=1024, layers_per_stage=[2.5, 3])
    assert "--layers-per-stage" in plan("simulate", "--help").out
    assert UniformStrategy.from_flags({"layers_per_stage": [1, 2]}).layers_per_stage == [1, 2]


@pytest.mark.parametrize(
    ("blocks", "pipeline", "devices", "want"),
    [
        (40, (16, 1), 16, (8, 1)),
        (12, (8, 1), 8, (4, 1)),
        (40, (4, 3), 16, (2, 5)),
        (7, (4, 2), 4, (1, 1)),
    ],
)
def test_the_nearest_stages_divide_blocks_and_devices(
    blocks: int, pipeline: tuple[int, int], devices: int, want: tuple[int, int]
) -> None:
    near = nearest_pipeline(blocks, pipeline, devices)
    assert near == want
    assert blocks % (near[0] * near[1]) == 0
    assert devices % near[0] == 0


def test_what_is_suggested_is_taken(plan: Plan) -> None:
    """40 blocks on 16 devices: 16 stages led to 20, and 20 to 16."""
    flags = ("--model", "llama-2-13b", "--cluster", "2x8xH100", "--global-batch", "64")
    flags += ("--seq-len", "1024")
    for typed, near in (("16", "8"), ("20", "1 x 8")):
        refused = plan("simulate", *flags, "--pp", typed)
        assert refused.code == 2
        assert refused.err.rstrip().endswith(f"nearest: {near}")
    assert plan("simulate", *flags, "--pp", "8").code == 0


def test_counts_of_end_stages_leave_equal_parts() -> None:
    cut = LayerCut.from_flags(None, 5, None)
    assert cut.blocks(32, 4) == (5, 9, 9, 9)
    with pytest.raises(InputError, match=r"nearest: 8$"):
        LayerCut.from_flags(None, None, 7).blocks(32, 4)
    with pytest.raises(InputError, match="at least 2 stages"):
        LayerCut.from_flags(None, 7, 7).blocks(32, 1)


def test_the_more_even_of_two_equally_near_cuts_is_suggested() -> None:
    """40 blocks on 4 stages, 9 first and 8 last: 9, 11, 11, 9 rather than 9, 12, 12, 7."""
    with pytest.raises(InputError) as refused:
        LayerCut(first=9, last=8).blocks(40, 4)
    assert refused.value.nearest == 9
