"""``plan export``: a page that fetches nothing and runs only what it names, and pictures."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from shardwright.api.html.page_file import SCRIPTS, web_text

Plan = Callable[..., Any]
GPT2 = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64", "--seq-len", "1024")
SVG_NAME = "http://www.w3.org/2000/svg"
"""A name of elements, which nobody fetches."""
MARKUP = "<img src=x onerror=alert(1)></script><b>"
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.fixture
def page(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a pipeline."""
    monkeypatch.chdir(tmp_path)
    flags = ("--tp", "2", "--pp", "2", "--shard", "zero2", "--json", "a.json")
    assert plan("simulate", *GPT2, *flags).code == 0
    done = plan("export", "a.json", "--to", "html")
    assert (done.code, done.out) == (0, "")
    assert "wrote a.html" in done.err
    return Path("a.html").read_text(encoding="utf-8")


def data_of(text: str) -> dict[str, Any]:
    found = DATA.search(text)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def test_only_what_the_policy_names_runs(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy[1]


def test_nothing_is_fetched_and_no_text_becomes_markup(page: str) -> None:
    assert not re.search(r'(?:src|href)\s*=\s*"', page.split("<script>")[0])
    for name in (*SCRIPTS, "style.css"):
        text = web_text(name).replace(SVG_NAME, "")
        assert not re.search(r"https?://|innerHTML|insertAdjacent|document\.write|eval\(", text), (
            name
        )
        assert "@import" not in text
        assert "url(" not in text


def test_the_data_are_those_of_a_simulation(page: str, plan: Plan) -> None:
    data, report = data_of(page), json.loads(Path("a.json").read_text())
    assert data["plan"] == report["plan"]
    view, step_s = data["view"], report["prediction"]["step_time_s"]
    assert view["plan_hash"] == report["plan_hash"]
    assert view["step_time_s"] == step_s
    assert math.isclose(sum(term["seconds"] for term in view["terms"]), step_s, rel_tol=1e-6)
    assert [row["stage"] for row in view["stages"] if row["stage"]] == ["0", "1"]
    assert all(len(row["tiers"]) == (1 if row["devices"] else 0) for row in view["stages"])
    assert len(view["assumptions"]) == 3
    plan("simulate", "a.json", "--trace", "trace.json")
    assert data["trace"] == json.loads(Path("trace.json").read_text())


def test_names_cannot_leave_their_place(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan("simulate", *GPT2, "--json", "a.json").code == 0
    document = json.loads(Path("a.json").read_text())["plan"]
    document["models"]["main"]["name"] = MARKUP
    Path("b.json").write_text(json.dumps(document))
    assert plan("export", "b.json", "--to", "html", "--out", "odd.html").code == 0
    text = Path("odd.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert data_of(text)["view"]["title"].startswith(MARKUP)


def test_a_plan_that_does_not_fit_says_so(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ("--model", "llama-3-70b", "--cluster", "8xH100", "--global-batch", "8")
    assert plan("simulate", *flags, "--seq-len", "4096", "--tp", "8", "--json", "a.json").code == 0
    assert plan("export", "a.json", "--to", "html").code == 0
    view = data_of(Path("a.html").read_text(encoding="utf-8"))["view"]
    assert not view["feasible"]
    assert "over by" in view["excess"][0]
    assert view["memory"]["share"] > 1


def test_the_losses_of_a_run_are_drawn(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its report, or of the file that a run keeps; many steps as their means."""
    monkeypatch.chdir(tmp_path)
    assert plan("simulate", *GPT2, "--json", "a.json").code == 0
    report = json.loads(Path("a.json").read_text())
    ran = {"measured": {"losses": [4.0, 3.0]}, "checkpoint": {"resumed": {"step": 10}}}
    Path("b.json").write_text(json.dumps({**report, "execute": ran}))
    assert plan("export", "b.json", "--to", "html").code == 0
    assert data_of(Path("b.html").read_text(encoding="utf-8"))["run"] == {
        "title": "loss 4.0000 to 3.0000 in steps 11 to 12",
        "note": "",
        "steps": [11, 12],
        "losses": [4.0, 3.0],
    }
    rows = "".join(f"{n},{5 - n / 1000},0.5,0.1\n" for n in range(1, 1201))
    Path("losses.csv").write_text("step,loss,gradient_norm,seconds\n" + rows)
    assert plan("export", "a.json", "--to", "html", "--losses", "losses.csv").code == 0
    run = data_of(Path("a.html").read_text(encoding="utf-8"))["run"]
    assert run["note"] == "each point is the mean of 2 steps"
    assert run["steps"] == list(range(2, 1201, 2))
    assert run["losses"][0] == pytest.approx(4.9985)
    Path("losses.csv").write_text("step,loss\n1,nan\n")
    refused = plan("export", "a.json", "--to", "html", "--losses", "losses.csv")
    assert refused.code == 2
    assert refused.err.startswith("--losses: got losses.csv; allowed: the losses.csv that a run")
    assert plan("export", "a.json", "--to", "html").code == 0
    assert "run" not in data_of(Path("a.html").read_text(encoding="utf-8"))


@pytest.fixture
def pipeline(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The document of a pipeline, beside its file a.json."""
    monkeypatch.chdir(tmp_path)
    flags = ("--tp", "2", "--pp", "2", "--shard", "zero2", "--recompute", "full")
    assert plan("simulate", *GPT2, *flags, "--json", "a.json").code == 0
    document: dict[str, Any] = json.loads(Path("a.json").read_text())
    return document


def test_an_svg_shows_stages_layers_and_terms(pipeline: dict[str, Any], plan: Plan) -> None:
    done = plan("export", "a.json", "--to", "svg")
    assert (done.code, done.out) == (0, "")
    assert "wrote a.svg" in done.err
    root = ElementTree.parse("a.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    texts = [item.text or "" for item in root.iter(f"{name}text")]
    assert {"0: 0-3", "1: 4-7", "1-6", "7-12"} <= set(texts)
    assert any(text.startswith("tp 2, zero2, recompute full: 12 layers") for text in texts)
    shown = [text for text in texts if text.startswith("matmul ")]
    step_s = pipeline["prediction"]["step_time_s"]
    share = pipeline["prediction"]["breakdown_s"]["matmul"] / step_s
    assert shown == [f"matmul {100 * share:.1f} %"]
    boxes = [item for item in root.iter(f"{name}rect") if item.get("height") == "26.0"]
    assert math.isclose(sum(float(box.get("width", "0")) for box in boxes), 952, abs_tol=1)
    height = float(root.get("height", "0"))
    assert all(float(item.get("y", "0")) < height for item in root.iter(f"{name}text"))
    assert "href" not in Path("a.svg").read_text(encoding="utf-8")


def test_a_png_is_the_same_picture(pipeline: dict[str, Any], plan: Plan) -> None:
    assert plan("export", "a.json", "--to", "png", "--out", "b.png").code == 0
    content = Path("b.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert plan("export", "a.json", "--to", "svg").code == 0
    root = ElementTree.parse("a.svg").getroot()
    sides = [int.from_bytes(content[at : at + 4]) for at in (16, 20)]
    drawn = [2 * float(root.get(side, "0")) for side in ("width", "height")]
    assert all(abs(found - wanted) <= 1 for found, wanted in zip(sides, drawn, strict=True))


def test_a_png_without_matplotlib_is_refused_in_one_line(
    pipeline: dict[str, Any], plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = plan("export", "a.json", "--to", "png")
    assert done.code == 2
    assert done.err.startswith("--to: got png with no matplotlib; allowed: ")
    assert done.err.endswith("nearest: plan export a.json --to svg\n")
    assert not Path("a.png").exists()


def test_markup_in_a_name_is_text_in_an_svg(pipeline: dict[str, Any], plan: Plan) -> None:
    pipeline["plan"]["models"]["main"]["name"] = MARKUP
    Path("b.json").write_text(json.dumps(pipeline["plan"]))
    assert plan("export", "b.json", "--to", "svg").code == 0
    assert "<img" not in Path("b.svg").read_text(encoding="utf-8")
    title = ElementTree.parse("b.svg").getroot()[0].text
    assert title is not None
    assert title.startswith(MARKUP)


def test_a_picture_of_many_stages_is_cut(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ("--model", "gpt3-175b", "--cluster", "32xA100-80GB", "--global-batch", "32")
    assert plan("simulate", *flags, "--seq-len", "2048", "--pp", "32", "--json", "a.json").code == 0
    assert plan("export", "a.json", "--to", "svg").code == 0
    text = Path("a.svg").read_text(encoding="utf-8")
    assert "… 8 more stages" in text


def test_losses_are_for_a_page(pipeline: dict[str, Any], plan: Plan) -> None:
    Path("losses.csv").write_text("step,loss\n1,4\n")
    done = plan("export", "a.json", "--to", "svg", "--losses", "losses.csv")
    assert done.code == 2
    assert done.err.startswith("--losses: got losses.csv; allowed: nothing beside a picture")


def test_another_target_names_those_there_are(pipeline: dict[str, Any], plan: Plan) -> None:
    done = plan("export", "a.json", "--to", "pdf")
    known = (
        "html, svg, png, torchrun, slurm, k8s, "
        "megatron, megatron-bridge, torchtitan, deepspeed, accelerate, galvatron, verl"
    )
    nearest = "plan export plan.json --to html"
    assert done.code == 2
    assert done.err == f"--to: got pdf; allowed: {known}; nearest: {nearest}\n"
