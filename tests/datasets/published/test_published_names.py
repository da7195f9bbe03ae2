"""The names of published runs mean something here, and none hides another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.datasets.catalogue.device import device
from shardwright.datasets.catalogue.fabric import fabric
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.models.load import presets
from shardwright.datasets.published.names import matches_run, model_entry, names, source_entry
from shardwright.datasets.published.runs import MEMORY_TABLE, published_runs
from shardwright.spec.workload.workload import DtypeRecord

KNOWN = names()
RUNS = published_runs()


def test_what_names_stand_for_exists() -> None:
    for entry in KNOWN["hardware"].values():
        assert device(entry["device"]).peak_flops_per_s["bf16"] > 0
    for entry in KNOWN["interconnect"].values():
        assert fabric(entry["fabric"], scope="network").name == entry["fabric"]
    for shorthand in KNOWN["dtype"].values():
        assert DtypeRecord.from_shorthand(shorthand)
    for entry in KNOWN["source"].values():
        assert entry["why"]
        assert stack(entry["stack"]) != stack(entry.get("fully_sharded", "deepspeed"))
    assert {x["preset"] for x in KNOWN["model"] if "preset" in x} <= set(presets())
    assert all(
        {"preset", "allowed"} & set(entry) or entry["vocab"] > 1000 for entry in KNOWN["model"]
    )


@pytest.mark.parametrize(
    ("table", "column"), [("hardware", "hardware"), ("interconnect", "interconnect"),
                          ("dtype", "dtype"), ("recompute", "recompute")],
)  # fmt: skip
def test_every_entry_is_a_cell_of_some_run(table: str, column: str) -> None:
    assert set(KNOWN[table]) <= {getattr(run, column) for run in RUNS}


def test_every_model_and_source_of_the_names_has_runs() -> None:
    used = {model_entry(run.model).get("starts") for run in (*RUNS, *published_runs(MEMORY_TABLE))}
    assert {entry["starts"] for entry in KNOWN["model"]} <= used
    assert set(KNOWN["source"]) <= {run.source_name for run in RUNS}
    assert model_entry("no such model") == {}
    assert source_entry(replace(RUNS[0], id="none-1", source="", notes="")) == {}


def test_every_condition_of_a_source_has_runs() -> None:
    for name, entry in KNOWN["source"].items():
        own = [run for run in RUNS if run.source_name == name]
        for condition in entry.get("where", ()):
            assert {**condition, **condition.get("of_memory", {})}["why"]
            assert any(matches_run(condition, run) for run in own), (name, condition)


def test_a_later_condition_comes_before_an_earlier() -> None:
    bridge = {run.id: source_entry(run) for run in RUNS if run.source_name == "bridge"}
    assert (bridge["bridge-0001"]["stack"], bridge["bridge-0001"]["overlap"]) == (
        "megatron:dispatcher=hybridep,cuda_graphs=on",
        "all",
    )
    assert bridge["bridge-0096"]["overlap"] == "dp+tp"


def test_ids_are_unique_and_have_a_source() -> None:
    assert len({run.id for run in RUNS}) == len(RUNS) == 1019
    assert all(run.source and run.source_name for run in RUNS)
