"""``plan size``: a curve with proven bounds, limits met by the smallest number, fine-tunings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.html.size_svg import size_svg
from shardwright.api.planning.report import simulate_plan
from shardwright.api.problem.resolve import Inputs
from shardwright.api.size.fine_tuning import FineTuning
from shardwright.api.size.limits import device_counts, typed_prices, within_seconds
from shardwright.api.size.size_point import quick_point
from shardwright.api.size.training_size import SizeQuestion, TrainingSize, training_size
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError

Plan = Callable[..., Any]
DAY_S = 86400
SMALL = Inputs(model="gpt2-xl", global_batch=256, seq_len=1024)


@cache
def small() -> TrainingSize:
    question = SizeQuestion(
        device="A100-80GB", tokens="20B", inputs=SMALL, prices="A100-80GB=2", most=32
    )
    return training_size(question)


def test_points_are_what_simulate_says_of_their_plans() -> None:
    found = small()
    assert [point.devices for point in found.points] == [8, 16, 32]
    for point in found.points:
        assert point.plan is not None
        assert point.prediction is not None
        assert point.time_s is not None
        assert not point.searched
        steps = -(-20 * 10**9 // (256 * 1024))
        priced = simulate_plan(point.plan, stack("shardwright"), None, ()).report.prediction
        assert priced.step_time_s == pytest.approx(point.prediction.step_time_s)
        assert point.time_s == pytest.approx(steps * point.prediction.step_time_s)
        assert point.cost == pytest.approx(2 * point.devices * point.time_s / 3600)
        assert point.bound_s <= point.prediction.step_time_s


def test_weak_scaling_holds_the_batch_of_a_device() -> None:
    question = SizeQuestion(device="A100-80GB", tokens="20B", inputs=SMALL, most=16, scaling="both")
    found = training_size(question)
    document = found.to_document()
    assert [p["global_batch"] for p in document["points"]] == [256, 256]
    assert [p["global_batch"] for p in document["weak_points"]] == [128, 256]
    assert found.points[1].to_document() == found.weak_points[1].to_document()
    assert found.weak_points[0].problem is not None
    assert size_svg(document).count("<circle") == 4
    alone = training_size(replace(question, scaling="weak"))
    assert [p.plan for p in alone.points] == [p.plan for p in found.weak_points]
    assert alone.weak_points == ()
    assert any(note.why.startswith("weak scaling") for note in alone.assumptions)


def test_prices_reused_between_numbers_of_devices_change_nothing() -> None:
    for point in small().points:
        inputs = replace(SMALL, cluster=f"{point.devices}xA100-80GB", prices={
            "currency": "USD", "device_hour": {"A100-SXM-80GB": 2.0}})  # fmt: skip
        alone = quick_point(inputs, point.devices, small().tokens)
        assert alone.to_document() == point.to_document()


def test_bounds_hold_for_the_searched_plan() -> None:
    answer = sw.plan("gpt2-xl", "8xA100-80GB", global_batch=256, seq_len=1024, prefer="best", top=0)
    best = answer.report.prediction.step_time_s
    point = small().points[0]
    assert point.prediction is not None
    assert point.bound_s <= best <= point.prediction.step_time_s * (1 + 1e-9)


def test_the_smallest_number_that_meets_the_limits_is_named() -> None:
    base = small()
    days = [(point.time_s or 0) / DAY_S for point in base.points]
    within = f"{(days[1] + days[2]) / 2:.4f}d"
    question = SizeQuestion(
        device="A100-80GB", tokens="20B", inputs=SMALL, within=within, prices="A100-80GB=2",
        budget=1e9, most=32, deadline_s=10,
    )  # fmt: skip
    seen: list[int] = []
    found = training_size(question, lambda points: seen.append(len(points)))
    assert seen == [len(found.points)]
    assert found.answer is not None
    assert found.answer.time_s is not None
    assert found.answer.time_s <= within_seconds(within)  # type: ignore[operator]
    assert 16 <= found.answer.devices <= 32
    assert found.answer.searched
    assert all(not p.meets(found.within_s, found.budget)
               for p in found.points if p.devices < found.answer.devices)  # fmt: skip


def test_what_bounds_rule_out_is_not_searched() -> None:
    question = SizeQuestion(
        device="A100-80GB", tokens="20B", inputs=SMALL, within="1h", most=16, deadline_s=10
    )
    found = training_size(question)
    assert found.answer is None
    assert found.ruled_out
    assert not any(point.searched for point in found.points)


def test_fine_tunings_stand_side_by_side(plan: Plan) -> None:
    flags = ("--model", "llama-3-8b", "--cluster", "8xH100-80GB", "--tokens", "100M")
    document = plan("size", *flags, "--epochs", "3", "--json", "-").document
    made = sw.size("llama-3-8b", "100M", cluster="8xH100-80GB", epochs=3)
    assert isinstance(made, FineTuning)
    assert document == json.loads(json.dumps(made.to_document()))
    ways = {way["name"]: way for way in document["ways"]}
    assert list(ways) == ["full", "LoRA", "QLoRA"]
    assert document["tokens"] == 300_000_000
    peaks = {name: made.points[name].prediction for name in ways}
    sizes = [max(r.reserved_bytes for r in p.memory) for p in peaks.values() if p is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert ways["QLoRA"]["trainable"].endswith("base_dtype=nf4")
    assert len(plan("size", *flags).out.splitlines()) < 10


def test_a_way_that_is_not_priced_is_refused_by_name(plan: Plan) -> None:
    flags = ("--model", "gpt2", "--cluster", "8xH100", "--tokens", "1M", "--dtype", "fp8")
    found = plan("size", *flags, "--json", "-")
    ways = {way["name"]: way for way in found.document["ways"]}
    assert all(way["hours"] or way["why"] for way in ways.values())


def test_the_picture_has_every_point() -> None:
    drawing = size_svg(small().to_document())
    assert drawing.count("<circle") == 3
    assert "8 devices:" in drawing
    shown = small()._repr_html_()
    assert shown.count("<tr>") == 4
    assert drawing in shown


def test_the_command_says_what_python_says(plan: Plan, tmp_path: Path) -> None:
    picture = tmp_path / "size.svg"
    flags = ("--model", "gpt2", "--device", "A100-80GB", "--tokens", "1B", "--global-batch", "64",
             "--seq-len", "1024", "--plot", str(picture))  # fmt: skip
    shown = plan("size", *flags)
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 100
    assert picture.read_text().startswith("<svg")
    assert "16384" in shown.out


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "no tokens": (("--model", "gpt2", "--device", "H100"), "--tokens"),
    "neither": (("--model", "gpt2", "--tokens", "1B"), "--device"),
    "a budget without prices": (
        ("--model", "gpt2", "--tokens", "1B", "--device", "H100", "--budget", "5"), "--prices"),
    "no time": (("--model", "gpt2", "--tokens", "1B", "--device", "H100", "--within", "soon"),
                "--within"),
    "a date on a cluster": (
        ("--model", "gpt2", "--tokens", "1B", "--cluster", "8xH100", "--within", "3d"),
        "nothing beside --cluster"),
    "another scaling": (
        ("--model", "gpt2", "--tokens", "1B", "--device", "H100", "--scaling", "wek"),
        "strong, weak, both; nearest: weak"),
    "scaling on a cluster": (
        ("--model", "gpt2", "--tokens", "1B", "--cluster", "8xH100", "--scaling", "weak"),
        "nothing beside --cluster"),
    "no such device": (("--model", "gpt2", "--tokens", "1B", "--device", "H1000"), "nearest"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case: str, plan: Plan) -> None:
    arguments, says = BAD[case]
    found = plan("size", *arguments)
    assert found.code == 2
    assert says in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_times_prices_and_counts_are_read_as_typed() -> None:
    assert within_seconds("2w") == 14 * DAY_S
    assert within_seconds(30) == 30 * DAY_S
    assert device_counts(8, 64) == [8, 16, 32, 64]
    assert typed_prices("H100-80GB=2.5EUR") == {
        "currency": "EUR", "device_hour": {"H100-SXM-80GB": 2.5}
    }  # fmt: skip
    with pytest.raises(InputError, match="a device-hour"):
        typed_prices("H100-80GB=cheap")


def test_a_device_that_the_catalogue_lacks_is_named_with_its_flag(plan: Plan) -> None:
    result = plan("size", "--model", "gpt2", "--device", "H10", "--tokens", "1T")
    assert result.code == 2
    assert result.err.startswith("--device: got H10; allowed: a device of the catalogue")
