"""The stack of a published run: its cells, its notes, what is usual of its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.api.validation.published_run import planned_run, simulation_arguments
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.published.runs import MEMORY_TABLE, PublishedRun, published_runs
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.errors import InputError

RUNS = {run.id: run for run in published_runs()}
GRAPHS = RUNS["bridge-0001"]  # usual of its source: HybridEP, CUDA graphs, overlap all
SFT = RUNS["nemo2407-0009"]  # megatron, overlap all


def software(run: PublishedRun) -> StackSpec:
    return planned_run(simulation_arguments(run)).problem.stack


def test_notes_come_before_what_is_usual() -> None:
    assert software(GRAPHS).name == "megatron:dispatcher=hybridep,cuda_graphs=on"
    noted = replace(GRAPHS, notes="DeepEP, no CUDA graphs")
    assert software(noted).name == "megatron:dispatcher=deepep"
    (note,) = (n for n in simulation_arguments(noted).assumed if "notes" in n.why)
    assert (note.path, note.value) == ("stack", "megatron:dispatcher=deepep")
    assert simulation_arguments(replace(GRAPHS, notes="FP8")).arguments == (
        simulation_arguments(GRAPHS).arguments
    )


def test_cells_come_before_notes() -> None:
    noted = replace(GRAPHS, notes="DeepEP")
    assert software(replace(noted, where="dispatcher=alltoall; cuda_graphs=off")).name == "megatron"
    assert software(replace(noted, stack="torchtitan:compile=off")).name == (
        "torchtitan:compile=off,dispatcher=deepep"
    )
    assert software(replace(SFT, stack="megatron-bridge")).expert_dispatch == "tokens"
    assert software(replace(SFT, stack="megatron", where="loss=fused")).fusion.cross_entropy


def test_a_setting_that_contradicts_the_usual_overlap_wins() -> None:
    usual, noted = software(SFT), software(replace(SFT, notes="no EP overlap"))
    assert usual.overlap == "all"
    assert replace(noted.overlaps, ep=True) == usual.overlaps
    assert not noted.overlaps.ep
    assert noted.fusion == usual.fusion


def test_a_setting_that_the_stack_lacks_is_not_read_from_notes() -> None:
    assert software(replace(SFT, notes="eager")).name == "megatron"


def test_settings_of_time_alone_do_not_part_peaks() -> None:
    peaks = {run.id: run for run in published_runs(MEMORY_TABLE)}
    graphs = replace(peaks["mlmtest-0059"], notes="cuda-graph-impl; overlap-grad-reduce")
    assert simulation_arguments(graphs).arguments["stack"] == "megatron"
    loss = replace(graphs, notes="fused loss")
    assert simulation_arguments(loss).arguments["stack"] == "megatron:loss=fused"


@pytest.mark.parametrize("cell", ["dispatcher=deepp", "megatron:loss=fusd", "megatorn"])
def test_a_cell_that_names_nothing_says_so(cell: str) -> None:
    with pytest.raises(InputError, match="nearest") as caught:
        simulation_arguments(replace(SFT, stack=cell))
    assert caught.value.field == "nemo2407-0009: stack"


def test_older_names_in_cells_price_as_they_did() -> None:
    for name in ("megatron-bridge", "megatron-cuda-graphs"):
        priced = software(replace(SFT, stack=name))
        usual = {"attention": priced.attention, "overlaps": priced.overlaps}
        assert priced == replace(stack(name), **usual)
