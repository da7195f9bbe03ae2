"""What a notebook shows of each handle: a table, a DataFrame, a picture."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.notebook.frames import frame
from shardwright.api.notebook.plan_handle import PlanHandle
from shardwright.api.notebook.run_result import RunResult
from shardwright.api.python import WhatIfs
from shardwright.api.what_if.what_if import WhatIf
from shardwright.datasets.published.runs import TABLE
from shardwright.spec.errors import InputError
from shardwright.spec.plan.shape_text import shape_text
from shardwright.spec.report.report import BREAKDOWN_TERMS

PNG = b"\x89PNG\r\n\x1a\n"
TYPED = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 512, "name": "<b>tiny</b>"}
ASKED: dict[str, Any] = {"global_batch": 4, "seq_len": 256}


@pytest.fixture(scope="module")
def plans() -> tuple[PlanHandle, PlanHandle]:
    """A pipeline of two stages, and tensor parallelism."""
    return (
        sw.simulate(TYPED, "2xH100", **ASKED, pp=2),
        sw.simulate(TYPED, "2xH100", **ASKED, tp=2, sp="megatron"),
    )


def _pictures(plans: tuple[PlanHandle, PlanHandle]) -> list[tuple[str, Callable[[], Any]]]:
    first, second = plans
    sweep = sw.what_if(first, sweep={"global_batch": [4, 8]}, deadline_s=5)
    return [
        ("plan", sw.plan(TYPED, "2xH100", **ASKED, pins={"pp": 2}).plot),
        ("memory", first.memory_plot),
        ("terms", first.explain().plot),
        ("memory again", first.explain().memory_plot),
        ("timeline", first.simulate().timeline.plot),
        ("comparison", sw.compare(first, second).plot),
        ("one change", sw.what_if(first, set="intra_node.bandwidth=0.5x", deadline_s=3).plot),
        ("tokens", sweep.plot),
        ("too little memory", WhatIfs(result=_over(sweep.result)).plot),
    ]


def _over(found: WhatIf) -> WhatIf:
    """The same answer, had the same plans not fitted."""
    answers = []
    for answer in found.answers:
        assert answer.same is not None
        prediction = replace(answer.same.prediction, feasible=False)
        answers.append(replace(answer, same=replace(answer.same, prediction=prediction)))
    return replace(found, answers=tuple(answers))


def _texts(picture: Any) -> str:
    found = []
    for axes in picture.axes:
        legend = axes.get_legend()
        found += [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        found += [text.get_text() for text in axes.texts]
        found += [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
        found += [] if legend is None else [text.get_text() for text in legend.get_texts()]
    return "\n".join(found)


def test_every_picture_is_drawn_and_says_what_it_is_of(
    plans: tuple[PlanHandle, PlanHandle],
) -> None:
    said = {}
    for name, draw in _pictures(plans):
        picture = draw()
        assert picture._repr_png_().startswith(PNG), name
        target = io.BytesIO()
        picture.savefig(target, format="svg")
        assert target.getvalue().startswith(b"<?xml")
        said[name] = _texts(picture)
    assert "matmul" in said["plan"]
    assert "capacity" in said["memory"]
    assert "stage 1" in said["memory"]
    assert "rank 1 compute" in said["timeline"]
    assert "exposed tp" in said["comparison"]
    assert "re-planned" in said["tokens"]
    assert "thousand tokens/s" in said["tokens"]
    assert "does not fit" in said["too little memory"]
    assert "baseline" in said["one change"]


def test_a_waterfall_ends_where_the_second_plan_is(plans: tuple[PlanHandle, PlanHandle]) -> None:
    found = sw.compare(*plans)
    bars = [bar for bar in found.plot().axes[0].patches if bar.get_width()]
    steps_s = [bar.get_width() for bar in bars]
    assert steps_s[0] + sum(steps_s[1:-1]) == pytest.approx(steps_s[-1], rel=1e-6)


def test_memory_bars_are_what_is_reserved(plans: tuple[PlanHandle, PlanHandle]) -> None:
    axes = plans[0].memory_plot().axes[0]
    for row, memory in enumerate(plans[0].prediction.memory):
        bars = [b for b in axes.patches if round(b.get_y() + b.get_height() / 2) == row]
        assert sum(b.get_width() for b in bars) == pytest.approx(memory.reserved_bytes / 2**30)


def test_pyplot_is_left_alone(plans: tuple[PlanHandle, PlanHandle]) -> None:
    plans[0].plot()
    code = (
        "import sys, shardwright as sw\n"
        f"p = sw.simulate({TYPED!r}, '8xH100', global_batch=32, seq_len=256)\n"
        "assert 'matplotlib' not in sys.modules and 'httpx' not in sys.modules\n"
        "assert 'pandas' not in sys.modules\n"
        "p.plot()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_frames_hold_what_the_documents_hold(plans: tuple[PlanHandle, PlanHandle]) -> None:
    p, other = plans
    memory = p.to_frame()
    assert list(memory.reserved_bytes) == [row.reserved_bytes for row in p.prediction.memory]
    terms = [name for name in memory.columns if name.endswith("_bytes")][3:]
    assert (memory[terms].sum(axis=1) == memory.reserved_bytes).all()
    why = p.explain()
    assert why.to_frame().seconds.sum() == pytest.approx(p.prediction.step_time_s)
    assert why.memory_frame().equals(memory)
    timeline = p.simulate().timeline
    spans = timeline.to_frame()
    assert len(spans) == len(timeline.spans)
    assert spans.start_s.is_monotonic_increasing
    assert (spans.start_s + spans.duration_s).max() == pytest.approx(timeline.step_time_s)
    both = sw.compare(p, other).to_frame()
    assert set(both.unit) == {"s", "bytes"}


def test_a_report_has_four_frames(plans: tuple[PlanHandle, PlanHandle]) -> None:
    p, _ = plans
    terms, stages, layers = (p.to_frame(rows) for rows in ("terms", "stages", "layers"))
    assert terms.seconds.sum() == pytest.approx(p.prediction.step_time_s)
    assert terms.equals(p.explain().to_frame())
    assert list(stages.stage) == [0, 1]
    assert list(stages.reserved_bytes) == [row.reserved_bytes for row in p.prediction.memory]
    assert layers.layers.iloc[-1] == "5"  # the head, behind an embedding and four blocks
    assert set(layers.stage) == {"0", "1"}
    with pytest.raises(InputError, match=r"to_frame: got layer; allowed: terms.*nearest: layers"):
        p.to_frame("layer")  # type: ignore[arg-type]


def test_a_simulation_draws_its_timeline(plans: tuple[PlanHandle, PlanHandle]) -> None:
    p, _ = plans
    assert _texts(p.plot()) == _texts(p.timeline.plot())
    assert "rank 1 compute" in _texts(p.plot())


def test_an_alternative_is_one_line() -> None:
    found = sw.plan(TYPED, "2xH100", **ASKED)
    assert found.alternatives == found.report.alternatives
    for other in found.alternatives:
        line = repr(other)
        assert line.startswith(f"<Alternative {shape_text(other.plan)}; step ")
        assert line.endswith((f", {other.lost_by}>", ", simplest>", ", fastest>"))
        assert len(line.splitlines()) == 1
    assert found.alternatives


def test_tables_are_escaped_and_scriptless(plans: tuple[PlanHandle, PlanHandle]) -> None:
    p, other = plans
    pieces = [p, p.explain(), p.simulate().timeline, sw.compare(p, other),
              sw.what_if(p, set="device.flops=2x", deadline_s=3)]  # fmt: skip
    for piece in pieces:
        text = piece._repr_html_()
        assert text.count("<table>") == text.count("</table>") >= 1
        assert "<b>tiny</b>" not in text
        assert "<script" not in text
        assert len(repr(piece).splitlines()) == 1


@pytest.mark.parametrize("library", ["pandas", "matplotlib", "httpx"])
def test_a_library_that_is_missing_is_named(
    library: str, plans: tuple[PlanHandle, PlanHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "pandas": lambda: frame([{}]),
        "matplotlib": plans[0].plot,
        "httpx": lambda: sw.Client("http://127.0.0.1:1"),
    }
    for name in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=f"pip install {library}"):
        calls[library]()


def test_validation_shows_its_errors(tmp_path: Any) -> None:
    table = TABLE
    lines = table.read_text(encoding="utf-8").splitlines()
    kept = [lines[0], *(line for line in lines if line.startswith("nemo2407"))]
    (tmp_path / "few.csv").write_text("\n".join(kept) + "\n")
    found = sw.validate(tmp_path / "few.csv")
    assert found.to_dict()["rows_priced"] == 8 == len(found.to_frame())
    assert "nemo2407" in found._repr_html_()
    assert "8 of 8 rows" in repr(found)
    assert "nemo2407 (8)" in _texts(found.plot())
    with pytest.raises(InputError, match="data: got"):
        sw.validate(tmp_path / "none.csv")


def test_the_catalogue_is_there() -> None:
    assert any(model["name"] == "gpt2" for model in sw.models()["models"])
    assert [d["name"] for d in sw.clusters("H100-SXM-80GB")["devices"]] == ["H100-SXM-80GB"]


def test_a_run_shows_its_losses(plans: tuple[PlanHandle, PlanHandle]) -> None:
    prediction = plans[0].prediction.to_document()
    document = {
        "predicted": prediction,
        "measured": {**prediction, "losses": [5.0 - n / 50 for n in range(60)]},
        "checkpoint": {"resumed": {"step": 40}},
        "stopped": {"step": 100, "steps": 200, "signal": "SIGINT", "saved": "<run>"},
    }
    run = RunResult(document)
    assert run == document
    assert [row["step"] for row in run.steps[:2]] == [41, 42]
    assert run.to_frame()["loss"].iloc[-1] == pytest.approx(3.82)
    shown = run._repr_html_()
    assert "steps 41 to 100: loss 5.0000 to 3.8200" in shown
    assert "stopped by SIGINT after step 100 of 200; saved in &lt;run&gt;" in shown
    target = io.BytesIO()
    run.plot().savefig(target, format="png")
    assert target.getvalue().startswith(PNG)
    event = {"event": "step", "step": 3, "loss": 2.5, "gradient_norm": None, "time_s": 0.1}
    short = RunResult(document, [event])
    assert short.steps == [{"step": 3, "loss": 2.5, "gradient_norm": None, "time_s": 0.1}]
    (axes,) = short.plot().axes
    assert axes.get_title(loc="left") == "loss 2.5000 to 2.5000 in 1 steps"


def test_hidden_traffic_has_a_color_of_its_own() -> None:
    from shardwright.api.notebook.plots.canvas import term_colour

    terms = (*BREAKDOWN_TERMS, "overlapped_dp")
    assert len({term_colour(term) for term in terms}) == len(terms)
