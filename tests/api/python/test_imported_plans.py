"""Frameworks' files where Python takes a plan: the command line's answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.spec.errors import InputError

FILE = Path(__file__).parents[1] / "frameworks" / "samples" / "torchtitan-06.toml"
BESIDE = {"cluster": "8xH100-80GB"}


def test_compare_says_what_the_command_says(plan: Callable[..., Any], tmp_path: Path) -> None:
    other = sw.simulate("llama-3-8b", "8xH100-80GB", global_batch=8, seq_len=8192, tp=2)
    path = other.save(tmp_path / "plan.json")
    made = sw.compare(FILE, path, **BESIDE)
    typed = plan("compare", str(FILE), str(path), "--cluster", "8xH100-80GB", "--json", "-")
    expected = json.loads(typed.out)
    ours = json.loads(json.dumps(made.to_dict()))
    assert ours["first"]["prediction"] == expected["first"]["prediction"]
    assert ours["second"]["prediction"] == expected["second"]["prediction"]


def test_what_if_and_explain_take_the_file() -> None:
    asked = {"set": "intra_node.bandwidth=2x", "deadline_s": 1.0}
    (row,) = sw.what_if(FILE, **asked, **BESIDE)
    imported = sw.import_plan(FILE, "8xH100-80GB")
    assert row["baseline_s"] == imported.prediction.step_time_s
    assert row["same_plan_s"] < row["baseline_s"]
    terms = sw.explain(FILE, **BESIDE)
    assert terms.to_frame().equals(imported.explain().to_frame())


def test_what_is_lacking_or_too_much_is_named() -> None:
    with pytest.raises(InputError, match="cluster: got nothing"):
        sw.compare(FILE, FILE)
    imported = sw.import_plan(FILE, "8xH100-80GB")
    with pytest.raises(InputError, match="seq_len: got 8; allowed: nothing beside a plan"):
        sw.what_if(imported, set="intra_node.bandwidth=2x", seq_len=8)
    with pytest.raises(InputError, match="a framework's file"):
        sw.compare("missing.toml", imported)
