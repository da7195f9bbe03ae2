"""``plan what-if``, ``sw.what_if``: documents, tables, drawings; equal questions, equal bytes."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

import shardwright as sw
from shardwright.api.html.svg import round_ticks
from shardwright.spec.errors import InputError
from shardwright.spec.inputs.what_if_keys import WHAT_IF_KEYS
from shardwright.spec.plan.plan import load_plan

Plan = Callable[..., Any]
ROW = {"changes", "same_plan", "re_planned", "moved"}
TOP = {"plan_hash", "baseline", "scale", "assumptions", "provenance"}
PRICED = {"plan", "plan_hash", "prediction", "excess", "idle_devices"}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan_file(base_report: Any, tmp_path: Path) -> str:
    """A plan of gpt2 on 8 H100: tp 2, pp 2, zero2."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(base_report))
    return str(path)


def test_the_document_of_a_change(plan: Plan, plan_file: str, base_report: Any) -> None:
    arguments = ("what-if", plan_file, "--set", "intra_node.bandwidth=2x", "--json", "-")
    document = plan(*arguments).document
    assert set(document) == TOP | ROW
    assert document["changes"] == [{"path": "intra_node.bandwidth", "was": 4.5e11, "now": 9e11}]
    assert document["plan_hash"] == base_report["plan_hash"]
    assert document["baseline"]["prediction"] == base_report["prediction"]
    same, best = document["same_plan"], document["re_planned"]
    assert set(same) == PRICED | {"possible", "change"}
    assert set(best) == PRICED | {"possible", "gain", "kept", "change", "moved", "search"}
    for found in (document["baseline"], same, best):
        text = json.dumps(found["plan"])
        assert load_plan(text, "plan").hash == found["plan_hash"]
    steps = [found["prediction"]["step_time_s"] for found in (same, best)]
    assert math.isclose(best["gain"], steps[0] / steps[1] - 1, rel_tol=1e-12)
    term, seconds = document["moved"]["term"], document["moved"]["seconds"]
    was, now = (d["prediction"]["breakdown_s"] for d in (document["baseline"], same))
    assert now[term] - was[term] == seconds < 0
    assert plan(*arguments).out == plan(*arguments).out


def test_the_document_of_a_sweep(plan: Plan, plan_file: str) -> None:
    document = plan(
        "what-if", plan_file, "--sweep", "Global-Batch=64,32,7", "--set", "device.flops=+50%",
        "--json", "-",
    ).document  # fmt: skip
    assert set(document) == TOP | {"sweep", "rows"}
    assert document["sweep"] == {"path": "global_batch", "values": ["64", "32", "7"]}
    assert [row["value"] for row in document["rows"]] == ["64", "32", "7"]
    for row in document["rows"]:
        assert set(row) == ROW | {"value"}
        assert [change["path"] for change in row["changes"]] == ["device.flops", "global_batch"]
    seven = document["rows"][2]
    assert seven["same_plan"]["possible"] is False
    assert "batch of 7" in seven["same_plan"]["why"]
    assert seven["moved"] is None
    assert seven["re_planned"]["gain"] is None


def test_infeasible_and_impossible_are_told_and_exit_0(plan: Plan, plan_file: str) -> None:
    document = plan("what-if", plan_file, "--set", "device.hbm=200MiB", "--json", "-").document
    assert document["same_plan"]["prediction"]["feasible"] is False
    assert document["same_plan"]["excess"][0]["excess_bytes"] > 0
    assert document["re_planned"]["possible"] is False
    assert "smallest change that fits" in document["re_planned"]["why"]
    shown = plan("what-if", plan_file, "--set", "device.hbm=200MiB")
    assert shown.code == 0
    assert "does not fit: over by" in " ".join(shown.out.split())
    assert "impossible: hbm of stage" in " ".join(shown.out.split())


def test_tables_name_the_term_and_the_change(plan: Plan, plan_file: str) -> None:
    shown = plan("what-if", plan_file, "--set", "intra_node.bandwidth=0.5x")
    assert shown.code == 0, shown.err
    assert "what if intra_node.bandwidth 450 GB/s -> 225 GB/s" in shown.out
    for word in ("baseline", "same plan", "re-planned", "exposed", "over the same plan"):
        assert word in shown.out
    assert all(len(line) <= 100 for line in shown.out.splitlines())
    swept = plan("what-if", plan_file, "--sweep", "seq_len=512,1024", "--add", "8xH100")
    assert swept.code == 0, swept.err
    assert "in every row: cluster 1x8xH100-SXM-80GB -> 2x8xH100-SXM-80GB" in swept.out
    assert "tokens/s (longer is faster)" in swept.out
    assert all(len(line) <= 100 for line in swept.out.splitlines())


def test_the_help_lists_every_key(plan: Plan) -> None:
    text = plan("what-if", "--help").out
    for key in WHAT_IF_KEYS:
        assert f"{key.path}={key.example}" in text
    assert "inter_rack" in text


@pytest.mark.parametrize("ending", ["svg", pytest.param("html", marks=pytest.mark.evidence)])
def test_drawings(plan: Plan, plan_file: str, tmp_path: Path, ending: str) -> None:
    bars, lines = (str(tmp_path / f"{name}.{ending}") for name in ("bars", "lines"))
    assert plan("what-if", plan_file, "--set", "device.hbm=500MiB", "--plot", bars).code == 0
    sweep = ("--sweep", "device.hbm=500MiB,2GiB,8GiB", "--plot", lines)
    assert plan("what-if", plan_file, *sweep).code == 0
    texts = [Path(path).read_text(encoding="utf-8") for path in (bars, lines)]
    for text in texts:
        drawing = text[text.index("<svg") :]
        root = ElementTree.fromstring(drawing)
        assert root.tag == f"{SVG}svg"
        words = " ".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))
        assert "same plan" in words
        assert "gpt2: what if device.hbm" in words
    assert "does not fit" in texts[0]
    assert texts[1].count("<circle") >= 6
    if ending == "svg":
        assert plan("what-if", plan_file, *sweep).code == 0
        assert Path(lines).read_text(encoding="utf-8") == texts[1]


def test_ticks_are_round_and_reach_the_top() -> None:
    for most in (0.003, 0.7, 1.0, 9.99, 57.1, 182_000.0):
        ticks = round_ticks(most)
        assert ticks[0] == 0
        assert ticks[-2] < most <= ticks[-1] * (1 + 1e-12)
        assert 3 <= len(ticks) <= 8


@pytest.fixture(scope="module")
def handle() -> sw.PlanHandle:
    return sw.plan("gpt2", "8xH100", global_batch=64, seq_len=1024, pins=["tp=2", "pp=1"])


def test_python_answers_in_rows(handle: sw.PlanHandle) -> None:
    found = sw.what_if(handle, sweep={"device.bandwidth": ["0.5x", 6.7e12]}, set="nodes=2")
    assert len(found) == 2
    assert [row["device.bandwidth"] for row in found][1] == 6.7e12
    assert found[0]["nodes"] == 2
    assert found[0]["baseline_s"] == handle.prediction.step_time_s
    assert found[0]["same_plan_s"] > found[1]["same_plan_s"]
    assert found[:1] == [found[0]]
    assert found.plans[0] is not None
    assert set(found.to_dict()) == TOP | {"sweep", "rows"}
    assert repr(found).count("\n") == 1
    assert "<svg" in found.to_svg()


def test_a_notebook_shows_a_table(handle: sw.PlanHandle) -> None:
    html = sw.what_if(handle, set={"device.flops": "2x"})._repr_html_()
    seen: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: seen.append(tag)  # type: ignore[method-assign]
    parser.feed(html)
    assert seen.count("tr") == 2
    assert "989.4 TFLOP/s -&gt; 1979 TFLOP/s" in html
    assert "script" not in seen


def test_a_frame_when_pandas_is_there(
    handle: sw.PlanHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sw.what_if(handle, set="device.flops=2x")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        found.to_frame()
    stand_in = ModuleType("pandas")
    stand_in.DataFrame = lambda rows: ("frame", rows)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    assert found.to_frame() == ("frame", [found[0]])


def test_a_handle_keeps_its_stack() -> None:
    made = sw.plan("gpt2", "8xH100", global_batch=64, seq_len=1024, stack="megatron", oom_risk=0.3)
    found = sw.what_if(made, set="device.flops=1x")
    assert found[0]["same_plan_s"] == made.prediction.step_time_s == found[0]["baseline_s"]
    assert found.to_dict()["provenance"]["stack"].startswith("megatron")
    other = sw.what_if(made, set="device.flops=1x", stack="shardwright")
    assert other.to_dict()["provenance"]["stack"].startswith("shardwright")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"set": "device.hbm=40"}, "set device.hbm: got 40; .*nearest: 40GiB"),
        ({"set": {"device.flops": "fast"}}, "set device.flops"),
        ({"sweep": {"nodes": "1,2"}}, "a list of values"),
        ({"sweep": ["nodes=1,2", "seq_len=1,2"]}, "2 sweeps"),
        ({"set": 5}, "set"),
        ({}, "a change"),
        ({"set": "nodes=2", "scale": "both"}, "scale: got both; allowed: batch, fixed"),
        ({"add": "8xH999"}, "add"),
        ({"set": "nodes=2", "calibrations": "none"}, "an unknown argument"),
    ],
)
def test_python_names_its_arguments(
    handle: sw.PlanHandle, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says) as refused:
        sw.what_if(handle, **given)
    assert not str(refused.value).startswith("--")


def test_a_deadline_gives_an_answer(handle: sw.PlanHandle) -> None:
    found = sw.what_if(handle, sweep="nodes=1,2", deadline_s=0.2)
    assert len(found) == 2
    assert all(row["same_plan_s"] for row in found)
