"""``plan --galvatron-profile``: the document of the contract, under Galvatron's costs or ours."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.planning.galvatron_job import layer_types
from shardwright.datasets.galvatron.read import SHIPPED
from shardwright.datasets.models.load import load_model
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import load_plan

Plan = Callable[..., Any]
ASKED = ("--galvatron-profile", str(SHIPPED), "--model", "llama-2-7b",
         "--cluster", "1x8xA100-80GB", "--seq-len", "2048")  # fmt: skip


@pytest.mark.parametrize(
    ("gib", "batch", "least"), [(16, 16, 9.9912), (24, 16, 13.6570), (36, 16, 14.7323),
                                (24, 64, 12.522066)],
)  # fmt: skip
def test_the_answer_is_a_plan_at_least_as_fast_as_galvatrons(
    plan: Plan, gib: int, batch: int, least: float
) -> None:
    words = ("--memory-gib", str(gib), "--global-batch", str(batch), "--json", "-")
    document = plan(*ASKED, *words).document
    found = document["prediction"]
    assert found["feasible"] is True
    assert found["samples_per_s"] >= least
    assert found["samples_per_s"] == pytest.approx(batch / found["step_time_s"])
    assert math.isclose(sum(found["breakdown_s"].values()), found["step_time_s"], rel_tol=1e-9)
    for row in found["memory"]:
        assert row["capacity_bytes"] == gib * 2**30
        assert row["reserved_bytes"] <= row["capacity_bytes"]
        withheld = row["reserved_bytes"] - row["allocated_bytes"]
        assert withheld == (int(gib * 1024 * 0.2) * 2**20 if gib > 20 else 0)
        assert sum(row["by"].values()) == row["reserved_bytes"]
    search = document["search"]
    assert search["gap"] == 0
    assert search["stopped_by"] == "proof"
    assert search["lower_bound_s"] == found["step_time_s"]
    assert {"tp", "pp", "sp", "shard", "recompute", "micro_batch"} <= set(search["space"])
    assert 0 < found["mfu"] <= found["hfu"] < 1
    notes = {note["path"]: note["value"] for note in document["assumptions"]}
    assert notes["costs"] == "galvatron"
    assert load_plan(json.dumps(document), "answer").check() == []
    for other in document["alternatives"]:
        assert other["prediction"]["step_time_s"] >= found["step_time_s"]


def test_a_terminal_shows_whose_costs_they_are(plan: Plan) -> None:
    result = plan(*ASKED, "--memory-gib", "24", "--global-batch", "16")
    assert result.code == 0
    for words in ("proven the fastest", "Hetu-Galvatron", "--costs ours", "23.9 of 24 GiB"):
        assert words in result.out


def test_our_costs_give_one_of_our_plans(plan: Plan) -> None:
    words = ("--costs", "ours", "--memory-gib", "40", "--global-batch", "16", "--deadline", "1")
    document = plan(*ASKED, *words, "--json", "-").document
    notes = {note["path"]: note["value"] for note in document["assumptions"]}
    assert notes["costs"] == "ours"
    assert document["provenance"]["stack"].startswith("shardwright")
    assert "cp" in document["search"]["space"]


def test_what_does_not_fit_names_the_smallest_budget(plan: Plan) -> None:
    words = ("--global-batch", "16", "--memory-gib")
    refused = plan(*ASKED, *words, "12")
    assert refused.code == 3
    least = refused.err.split()[-1]
    assert plan(*ASKED, *words, least).code == 0
    assert plan(*ASKED, *words, f"{float(least) - 0.1:.1f}").code == 3


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--dtype", "fp8"), "--dtype"),
        (("--optimizer", "muon"), "--optimizer"),
        (("--trainable", "lora:rank=8"), "--trainable"),
        (("--model", "llama-3-8b"), "layertype_0_sp: parameter_size"),
        (("--cluster", "1x6xA100-80GB"), "--cluster"),
        (("--model", "t5-large", "--seq-len", "512"), "batch sizes"),
    ],
)
def test_what_its_costs_do_not_speak_of_is_refused(
    plan: Plan, flags: tuple[str, ...], says: str
) -> None:
    result = plan(*ASKED, "--global-batch", "16", *flags)
    assert result.code == 2
    assert says in result.err
    assert result.err.count("\n") == 1


def test_blocks_are_grouped_as_galvatron_measures_them() -> None:
    def counts(name: str) -> list[int]:
        return [kind.count for kind in layer_types(load_model(name)[0], 2048)]

    assert counts("llama-2-7b") == [32]
    assert counts("t5-large") == [24, 24]
    with pytest.raises(InputError, match="multi-token"):
        counts("deepseek-v3")


def test_python_asks_by_the_same_names(tmp_path: Path) -> None:
    asked = {"global_batch": 16, "seq_len": 2048, "memory_gib": 16.0, "galvatron_profile": SHIPPED}
    found = sw.plan("llama-2-7b", "1x8xA100-80GB", **asked)
    assert found.prediction.samples_per_s >= 9.9912
    with pytest.raises(InputError, match="costs"):
        sw.plan("llama-2-7b", "1x8xA100-80GB", **{**asked, "costs": "theirs"})
    with pytest.raises(InputError, match="pin"):
        sw.plan("llama-2-7b", "1x8xA100-80GB", **asked, pins=("tp=2",))
