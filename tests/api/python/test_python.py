"""``import shardwright as sw``: the same rules as the command, named as arguments."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.html.report import report_html
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.models.load import presets
from shardwright.spec.errors import InfeasibleError, InputError
from shardwright.spec.plan.plan import load_plan

TYPED = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512, "name": "<b>tiny</b>"}


@pytest.fixture(scope="module")
def handle() -> sw.PlanHandle:
    return sw.plan(TYPED, "8xH100", global_batch=32, seq_len=256, pins=["pp=2"])


def test_a_plan_has_report_prediction_and_document(handle: sw.PlanHandle) -> None:
    assert handle.plan is handle.report.plan
    assert handle.prediction.feasible
    assert len(handle.plan.program.stages) == 2
    document = handle.to_dict()
    assert document["plan_hash"] == handle.plan.hash
    assert {"search", "alternatives", "prediction"} <= set(document)
    json.dumps(document, allow_nan=False)


def test_one_line_describes_it(handle: sw.PlanHandle) -> None:
    assert repr(handle).startswith("<PlanHandle <b>tiny</b>: tp ")
    assert "\n" not in repr(handle)


def test_saved_plan_is_a_plan(handle: sw.PlanHandle, tmp_path: Path) -> None:
    path = handle.save(tmp_path / "plan.json")
    assert load_plan(path.read_text(), str(path)).hash == handle.plan.hash
    assert sw.explain(path).report.plan.hash == handle.plan.hash
    assert sw.simulate(str(path)).prediction == handle.prediction
    with pytest.raises(InputError, match="no_such_folder"):
        handle.save(tmp_path / "no_such_folder" / "plan.json")


def test_simulation_has_the_timeline_of_the_step(handle: sw.PlanHandle) -> None:
    simulation = handle.simulate()
    assert simulation.prediction == handle.prediction
    assert simulation.timeline is simulation.timeline
    assert simulation.timeline.step_time_s == pytest.approx(handle.prediction.step_time_s)


def test_explanation_adds_up(handle: sw.PlanHandle) -> None:
    explanation = sw.explain(handle)
    total = sum(term["seconds"] for term in explanation.terms)
    assert total == pytest.approx(handle.prediction.step_time_s)


def test_nouns_are_as_good_as_their_names() -> None:
    model, cluster = presets()["gpt2"].model, parse_cluster("8xH100").cluster
    question: dict[str, Any] = {"global_batch": 64, "seq_len": 1024, "tp": 2}
    named = sw.simulate("gpt2", "8xH100", **question)
    given = sw.simulate(model, cluster, **question)
    assert given.plan.hash == named.plan.hash
    typed = {"nodes": 1, "devices_per_node": 8, "device": "H100"}
    assert sw.simulate(model, typed, **question).plan.hash == named.plan.hash


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"global_batch": 8}, "seq_len: got nothing"),
        ({}, "global_batch and seq_len: got nothing"),
        ({}, "nearest: global_batch=64, seq_len=4096"),
        ({"global_batch": "8", "seq_len": 64}, "global_batch: got '8'; allowed: a whole number"),
        ({"global_batch": True, "seq_len": 64}, "global_batch: got True"),
        ({"global_batch": 8.0, "seq_len": 64}, "nearest: 8"),
        ({"global_batch": 8, "seq_len": 64, "dtype": 16}, "dtype: got 16; allowed: a text"),
        ({"global_batch": 8, "seq_len": 64, "pins": ["tp=5"]}, "pins: got tp=5"),
        ({"global_batch": 8, "seq_len": 64, "pins": ["tpp=5"]}, "pins: got tpp"),
        ({"global_batch": 8, "seq_len": 64, "memory_gib": float("inf")}, "memory_gib: got inf"),
        ({"global_batch": 8, "seq_len": 64, "oom_risk": 2}, "oom_risk: got 2"),
    ],
)
def test_mistakes_name_the_argument(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        sw.plan(TYPED, "8xH100", **arguments)
    assert words in str(caught.value)
    assert "--" not in str(caught.value)


def test_other_mistakes() -> None:
    with pytest.raises(InputError, match="model: got int"):
        sw.plan(3, "8xH100", global_batch=8, seq_len=64)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cluster: got list"):
        sw.plan("gpt2", [8], global_batch=8, seq_len=64)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tp: got 2; allowed: nothing beside a plan"):
        sw.simulate(sw.simulate("gpt2", "8xH100", global_batch=8, seq_len=64), tp=2)
    with pytest.raises(InputError, match="tp: got '2'"):
        sw.simulate("gpt2", "8xH100", global_batch=8, seq_len=64, tp="2")
    with pytest.raises(InputError, match=r"recompute: got ops:mlp.*ops:save=NAMES"):
        sw.simulate("gpt2", "8xH100", global_batch=8, seq_len=64, recompute="ops:mlp")
    with pytest.raises(InputError, match="hpz:8"):
        sw.plan("gpt2", "8xH100", global_batch=8, seq_len=64, pins=["shard=hpz:8"])
    with pytest.raises(InfeasibleError, match="hbm"):
        sw.plan("llama-3-70b", "1xH100", global_batch=1, seq_len=512)
    with pytest.raises(InputError, match="CUDA devices"):
        sw.execute(sw.simulate("gpt2", "8xH100", global_batch=8, seq_len=64), steps=1)


class _Reader(HTMLParser):
    """Collects tags, and checks that every one is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not {"src", "href", "onclick", "onload"} & {name for name, _ in attrs}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_whole_and_escaped(handle: sw.PlanHandle) -> None:
    text = handle._repr_html_()
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    assert {"table", "details"} <= reader.seen
    assert "script" not in reader.seen
    assert "<b>tiny" not in text
    assert "&lt;b&gt;tiny&lt;/b&gt;" in text
    assert text == report_html(handle.report)


def test_html_of_what_does_not_fit() -> None:
    simulation = sw.simulate("llama-3-70b", "8xH100", global_batch=8, seq_len=4096, tp=8)
    assert "does not fit" in simulation._repr_html_()
    assert "does not fit" in repr(simulation)
