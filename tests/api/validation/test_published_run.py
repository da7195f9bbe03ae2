"""Published runs as questions to ``plan simulate``: what is said, refused and assumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.planning.uniform_chunks import even_layers
from shardwright.api.validation.published_run import (
    SimulationArguments,
    planned_run,
    qualifies,
    simulate_run,
    simulation_arguments,
)
from shardwright.datasets.models.load import presets
from shardwright.datasets.published.runs import MEMORY_TABLE, PublishedRun, published_runs
from shardwright.spec.errors import InputError
from shardwright.spec.model.model_spec import MultiTokenLayer
from shardwright.spec.strategy import LayerStrategy

RUNS = {run.id: run for run in published_runs()}
QUALIFYING = [run for run in RUNS.values() if qualifies(run)]
PRICING = ("stack", "attention", "overlap", "calibration")


def _said(run: PublishedRun) -> bool:
    try:
        return simulate_run(simulation_arguments(run)).prediction.step_time_s > 0
    except InputError:
        return False


def test_nearly_every_row_can_be_said() -> None:
    """A tenth of what the evidence asks: every tenth row."""
    assert len(QUALIFYING) == 922
    sample = QUALIFYING[::10]
    assert sum(map(_said, sample)) >= 0.95 * len(sample)


@pytest.mark.parametrize("name", ["mpt-0001", "titan-0011", "bridge-0076", "mlperf-0003"])
def test_a_question_is_the_flags_of_simulate(name: str) -> None:
    question = simulation_arguments(RUNS[name])
    assert not question.even_cuts
    given: dict[str, Any] = dict(question.arguments)
    model, cluster = given.pop("model"), given.pop("cluster")
    report = simulate_run(question)
    assert sw.simulate(model, cluster, **given).report.prediction == report.prediction
    assert report.assumptions[: len(question.assumed)] == question.assumed


@pytest.mark.parametrize("name", ["bloom-0140", "mlperf-0070", "bridge-0001"])
def test_a_question_with_a_remainder_is_a_plan(name: str) -> None:
    question = simulation_arguments(RUNS[name])
    assert question.even_cuts
    report = simulate_run(question)
    pricing = {k: v for k, v in question.arguments.items() if k in PRICING}
    assert sw.simulate(report.plan, **pricing).report.prediction == report.prediction
    chunks = [chunk for stage in report.plan.program.stages for chunk in stage.virtual_stages]
    sizes = {sum(x.layers[2] - x.layers[1] + 1 for x in chunk) for chunk in chunks}
    assert max(sizes) - min(sizes) <= 1


def test_layers_are_cut_evenly_both_ends_counted() -> None:
    model = presets()["llama-3.1-405b"].model
    chunks = even_layers(model, 64, LayerStrategy())
    assert [sum(x.layers[2] - x.layers[1] + 1 for x in chunk) for chunk in chunks] == [2] * 64
    assert [chunk[0].layers[1] for chunk in chunks] == list(range(0, 128, 2))
    with pytest.raises(InputError, match="at most the 128 layers"):
        even_layers(model, 129, LayerStrategy())


def test_a_model_without_its_further_layer_has_none() -> None:
    without = min(run.id for run in QUALIFYING if run.model == "DeepSeekV3 (w/o MTP)")
    for name, count in ((without, 0), ("bridge-0001", 1)):
        model = simulate_run(simulation_arguments(RUNS[name])).plan.models["main"]
        assert sum(isinstance(x, MultiTokenLayer) for x in model.layers()) == count
        assert model.block_count == 61


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("mpt-0001", {"tp": None}, "mpt-0001: tp: got nothing"),
        ("mpt-0001", {"hardware": "TPU v4"}, "hardware: got TPU v4; allowed: a device"),
        ("mpt-0001", {"dtype": "int8"}, "dtype: got int8; allowed: a number format"),
        ("mpt-0001", {"recompute": "selective:mlp"}, "not modules"),
        ("mpt-0001", {"gpus": 12, "gpus_per_node": 8}, "gpus: got 12; allowed: whole nodes of 8"),
        ("bridge-0001", {"hidden": 4096}, "hidden: got 4096; allowed: 7168, as deepseek-v3 has"),
        ("bridge-0001", {"layers": 4}, "layers: got 4; allowed: 61, as deepseek-v3 has"),
    ],
)
def test_what_has_no_meaning_here_is_refused(
    name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        simulation_arguments(replace(RUNS[name], **changes))


def _assumed(question: SimulationArguments) -> dict[str, Any]:
    return {note.path: note.value for note in question.assumed}


def test_blanks_are_filled_by_what_the_source_runs() -> None:
    question = simulation_arguments(RUNS["titan-0006"])
    given = question.arguments
    assert (given["stack"], given["cp"], given["global_batch"]) == ("torchtitan", 4, 2)
    assert _assumed(question)["global_batch"] == 2
    adapters = simulation_arguments(RUNS["mlperf-0003"])
    assert _assumed(adapters)["trainable"] == adapters.arguments["trainable"]
    sharded = simulation_arguments(RUNS["bridge-0074"])
    assert (sharded.arguments["shard"], sharded.arguments["stack"]) == ("zero3", "torchtitan")
    assert simulation_arguments(RUNS["bloom-0140"]).arguments["cluster"].endswith("@4x100G-IB")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("bridge-0001", [4, 64, 256]), ("mlperf-0069", [4, 72, 144]), ("bridge-0074", [4, 64])],
)
def test_jobs_of_several_racks_take_equal_parts(name: str, sizes: list[int]) -> None:
    """256 devices are 4 x 64, not 3 x 72 and a rest; 144 are two whole racks."""
    plan = simulate_run(simulation_arguments(RUNS[name])).plan
    assert [level.group_size for level in plan.cluster.levels] == sizes


def test_a_torn_table_names_the_line(tmp_path: Path) -> None:
    header = ",".join(PublishedRun.__dataclass_fields__)
    row = ",".join("x" if n == "id" else "1" for n in PublishedRun.__dataclass_fields__)
    table = tmp_path / "runs.csv"
    table.write_text(f"{header}\n{row}\n")
    assert published_runs(table)[0].gpus == 1
    for cell, words in (("a", "a number, or nothing"), ("1.5", "a whole number")):
        cells = row.split(",")
        cells[header.split(",").index("gpus")] = cell
        torn = tmp_path / f"{cell}.csv"
        torn.write_text(f"{header}\n{','.join(cells)}\n")
        with pytest.raises(InputError, match=rf"{cell}.csv line 2: gpus.*{words}"):
            published_runs(torn)
    other = tmp_path / "other.csv"
    other.write_text(header.replace("gpus,", "cards,", 1) + f"\n{row}\n")
    with pytest.raises(InputError, match="no such column"):
        published_runs(other)


def test_seconds_come_from_tokens_a_second_where_only_those_are_printed() -> None:
    run = RUNS["mpt-0001"]
    assert run.step_time_s is None
    assert run.seconds == pytest.approx(4096 * 2048 / (1007 * 512))
    assert replace(run, step_time_s=2.0).seconds == 2.0
    assert replace(run, global_batch=None).seconds is None


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ({"ffn": None, "kv_heads": None}, "gpt2"),
        ({"kv_heads": 2}, "llama"),
        ({"experts": 8, "topk": 2, "ffn": 512}, "llama"),
    ],
)
def test_an_unknown_model_is_priced_by_its_sizes_and_that_is_listed(
    changes: dict[str, Any], family: str
) -> None:
    run = replace(RUNS["mpt-0001"], model="Something new", **changes)
    question = simulation_arguments(run)
    assert question.arguments["model"]["family"] == family
    assert any(note.path == "model" for note in question.assumed)
    assert question.arguments["model"].get("experts") == run.experts
    assert _said(run)


def test_an_unknown_source_is_read_by_where_its_rows_come_from() -> None:
    run = replace(RUNS["bridge-0076"], id="new-0001")
    assert (
        simulation_arguments(run).arguments == simulation_arguments(RUNS["bridge-0076"]).arguments
    )
    nowhere = simulation_arguments(replace(run, source="a letter"))
    assert "stack" not in nowhere.arguments
    assert any("nothing is known of the source" in note.why for note in nowhere.assumed)


def test_a_functional_test_is_read_with_its_own_arguments() -> None:
    peaks = {run.id: run for run in published_runs(MEMORY_TABLE)}
    asked = simulation_arguments(peaks["mlmtest-0059"]).arguments
    assert asked["attention"] == "flash"  # deterministic, recorded by a Transformer Engine that can
    assert (
        simulation_arguments(peaks["mlmtest-0058"]).arguments["attention"] == "unfused"
    )  # one that cannot
    mixture = simulation_arguments(peaks["mlmtest-0648"]).arguments["model"]
    assert (mixture["expert_ffn"], mixture["dense_layers"], mixture["kv_rank"]) == (1024, 1, 512)
    instances = simulation_arguments(peaks["mlmtest-0269"])
    assert instances.arguments["shard"] == "1/1/2"
    assert "shard" in {note.path for note in instances.assumed}
    with pytest.raises(InputError, match="vision tower"):
        simulation_arguments(peaks["mlmtest-0561"])


def test_states_that_no_flag_says_are_those_of_the_source_in_tables_of_memory() -> None:
    peaks = {run.id: run for run in published_runs(MEMORY_TABLE)}
    question = simulation_arguments(peaks["bskill-0016"])
    asked = planned_run(question)
    assert asked.plan.workload.dtype.gradient == "bf16"
    assert asked.problem.stack.narrow_gather
    assert {"gradient", "narrow_gather"} <= {note.path for note in question.assumed}
    titan = planned_run(simulation_arguments(peaks["titan-0004"])).problem.stack
    assert titan.loss_copies
    assert not titan.fusion.cross_entropy
    eager = next(run for run in peaks.values() if run.notes.startswith("eager"))
    asked = planned_run(simulation_arguments(eager))
    assert (asked.problem.stack.name, "fused_loss" in asked.unprinted) == (
        "torchtitan:compile=off",
        True,
    )
    timed = next(run for name, run in RUNS.items() if name.startswith("bskill"))
    assert not simulation_arguments(replace(timed, recompute="none")).of_memory
