"""``plan compare`` and ``sw.compare``: two plans side by side, in terms that add up."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.notebook.comparison_handle import ComparisonHandle
from shardwright.api.views.comparison import ComparisonSide
from shardwright.api.views.comparison_view import comparison_view

Plan = Callable[..., Any]
GPT2 = ("--model", "gpt2", "--cluster", "8xH100", "--seq-len", "1024")
HALVES = ("--tp", "2", "--pp", "2", "--shard", "zero2")


@pytest.fixture
def files(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """a.json, b.json (another strategy) and c.json (half the batch of a)."""
    monkeypatch.chdir(tmp_path)
    for name, batch, strategy in (("a", 64, HALVES), ("b", 64, ()), ("c", 32, HALVES)):
        flags = (*GPT2, "--global-batch", str(batch), *strategy, "--json", f"{name}.json")
        assert plan("simulate", *flags).code == 0


@pytest.mark.usefixtures("files")
def test_terms_add_up_to_both_plans(plan: Plan) -> None:
    found = plan("compare", "a.json", "b.json", "--json", "-").document
    for side in ("first", "second"):
        alone = json.loads(Path(found[side]["name"]).read_text())
        assert found[side]["prediction"] == alone["prediction"]
        assert found[side]["plan_hash"] == alone["plan_hash"]
    assert found["unit"] == "step"
    steps = [found[side]["prediction"]["step_time_s"] for side in ("first", "second")]
    assert found["whole_s"] == steps
    for number, key in enumerate(("first_s", "second_s")):
        assert math.isclose(sum(t[key] for t in found["terms"]), steps[number], rel_tol=1e-12)
    by_s = sum(term["by_s"] for term in found["terms"])
    assert math.isclose(by_s, steps[1] - steps[0], rel_tol=1e-9)
    assert found["questions"] == []
    decided = {row["axis"]: (row["first"], row["second"]) for row in found["decisions"]}
    assert decided["tp"] == ("2", "1")
    assert decided["pp"] == ("2", "1")


@pytest.mark.usefixtures("files")
def test_memory_adds_up_to_the_fullest_device(plan: Plan) -> None:
    found = plan("compare", "a.json", "b.json", "--json", "-").document
    for side, key in (("first", "first_bytes"), ("second", "second_bytes")):
        rows = found[side]["prediction"]["memory"]
        most = max(row["reserved_bytes"] / row["capacity_bytes"] for row in rows)
        total = sum(term[key] for term in found["memory"])
        assert any(
            row["reserved_bytes"] == total and total / row["capacity_bytes"] == most for row in rows
        )


@pytest.mark.usefixtures("files")
def test_other_batches_are_compared_by_token(plan: Plan) -> None:
    found = plan("compare", "a.json", "c.json", "--json", "-").document
    assert found["unit"] == "million_tokens"
    assert [row["axis"] for row in found["questions"]] == ["global batch"]
    tokens = [64 * 1024, 32 * 1024]
    for number, side in enumerate(("first", "second")):
        step_s = found[side]["prediction"]["step_time_s"]
        assert math.isclose(found["whole_s"][number], step_s / tokens[number] * 1e6, rel_tol=1e-12)
    assert math.isclose(found["speed"], found["whole_s"][0] / found["whole_s"][1], rel_tol=1e-12)
    shown = plan("compare", "a.json", "c.json").out
    assert "asked otherwise: global batch 64 -> 32" in shown
    assert "seconds a million tokens" in shown


@pytest.mark.usefixtures("files")
def test_the_faster_one_and_its_term_are_named(plan: Plan) -> None:
    document = plan("compare", "a.json", "b.json", "--json", "-").document
    faster = "b.json" if document["speed"] > 1 else "a.json"
    sign = -1 if document["speed"] > 1 else 1
    most = max(document["terms"], key=lambda term: sign * term["by_s"])["term"]
    shown = " ".join(plan("compare", "a.json", "b.json").out.split())
    assert f"{faster} does " in shown
    assert f"less of {most.replace('_', ' ')} " in shown
    turned = plan("compare", "b.json", "a.json", "--json", "-").document
    assert math.isclose(turned["speed"], 1 / document["speed"], rel_tol=1e-12)


@pytest.mark.usefixtures("files")
def test_a_plan_is_as_fast_as_itself(plan: Plan) -> None:
    shown = plan("compare", "a.json", "a.json").out
    assert "both are equally fast" in shown
    assert "otherwise" not in shown
    assert "compared: " not in shown


@pytest.mark.usefixtures("files")
def test_odd_comparisons_say_what_is_compared(plan: Plan) -> None:
    other = ("--model", "gpt2-xl", "--cluster", "8xH100", "--seq-len", "1024", "--shard", "zero1")
    assert plan("simulate", *other, "--global-batch", "64", "--json", "xl.json").code == 0
    models = " ".join(plan("compare", "a.json", "xl.json").out.split())
    assert "compared: two models, gpt2 (124 M parameters) and gpt2-xl (1.56 B parameters), by " \
        "tokens a second; differs: model" in models  # fmt: skip
    assert " times as many tokens a second as xl.json" in models
    batches = " ".join(plan("compare", "a.json", "c.json").out.split())
    assert "compared: two questions of gpt2, by tokens a second, for their steps are of 65.5 k " \
        "and 32.8 k tokens; differs: global batch" in batches  # fmt: skip
    found = sw.compare("a.json", "xl.json")
    assert "compared: two models, gpt2 " in found._repr_html_()
    assert comparison_view(found)["compared"].startswith("compared: two models, gpt2 ")


@pytest.mark.usefixtures("files")
def test_in_python_it_is_a_table_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sw.compare("a.json", "c.json")
    stand_in = ModuleType("pandas")
    stand_in.DataFrame = lambda rows: rows  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    seconds = [row for row in found.to_frame() if row["unit"] == "s"]
    first, second = found.whole_s
    assert math.isclose(sum(row["first"] for row in seconds), first, rel_tol=1e-12)
    assert math.isclose(sum(row["by"] for row in seconds), second - first, rel_tol=1e-9)
    assert "million tokens" in found._repr_html_()
    assert "more tokens a second than" in repr(found)
    assert found.to_dict()["speed"] == found.speed
    assert sw.compare(sw.simulate("a.json"), "a.json").speed == 1


@pytest.mark.usefixtures("files")
def test_names_are_escaped_in_html() -> None:
    one = sw.simulate("a.json").report
    sides = [ComparisonSide(name=name, report=one) for name in ("<b>&.json", "second")]
    shown = ComparisonHandle(first=sides[0], second=sides[1])._repr_html_()
    assert "&lt;b&gt;&amp;.json" in shown
    assert "<b>&.json" not in shown
