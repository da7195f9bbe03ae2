"""``plan calibrate`` on published runs, and what every verb makes of the calibration."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.cli.main import run
from shardwright.api.problem.stored_calibrations import calibration_folder, load_calibration
from shardwright.api.validation.time_calibration import sample_rows, usable_rows
from shardwright.datasets.published.runs import TABLE, published_runs
from shardwright.spec.cluster.calibration import FACTOR_NAMES
from shardwright.spec.errors import InputError

Plan = Callable[..., Any]
LLAMA = (
    "--model", "llama-2-7b", "--cluster", "8xA100-80GB", "--global-batch", "64",
    "--seq-len", "4096", "--stack", "megatron-deepspeed", "--json", "-",
)  # fmt: skip


def table(folder: Path, keep: Callable[[dict[str, str]], bool], name: str = "runs.csv") -> str:
    """Some rows of the bundled runs as a file of their own."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    path = folder / name
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if keep(row))
    return str(path)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The 26 multi-node runs of vTrain; what is stored goes into a folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return table(tmp_path, lambda row: row["id"].startswith("vtrain_multi"))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's data folder that holds a calibration on the runs of :func:`data`, ``selene``."""
    folder = tmp_path_factory.mktemp("fitted")
    rows = table(folder, lambda row: row["id"].startswith("vtrain_multi"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        assert run(("calibrate", "--data", rows, "--name", "selene")) == 0
    return folder / "data"


@pytest.fixture
def selene(data: str, fitted: Path, tmp_path: Path) -> str:
    """As :func:`data`, with a copy of the calibration in the test's own folder."""
    shutil.copytree(fitted, tmp_path / "data")
    return data


def test_ten_rows_are_fitted_and_the_others_come_nearer(plan: Plan, data: str) -> None:
    found = plan("calibrate", "--data", data, "--name", "selene", "--json", "-").document
    assert (found["device"], found["stack"]) == ("A100-SXM-80GB", "megatron-deepspeed")
    assert set(found["factors"]) == set(FACTOR_NAMES)
    assert len(found["fitted_on"]) == 10
    assert (found["rows_read"], found["rows_usable"], found["held_out"]["rows"]) == (26, 26, 16)
    assert found["held_out"]["median_ape"] < found["held_out"]["shipped_median_ape"]
    assert found["fitted_error"] < found["left_out_error"] < found["shipped_error"]
    again = plan("calibrate", "--data", data, "--name", "selene", "--json", "-").document
    assert again["hash"] == found["hash"]
    stored = load_calibration("selene")
    assert list(stored.fitted_on) == found["fitted_on"]


def test_a_calibration_changes_prices_and_their_interval_but_no_decision(
    plan: Plan, data: str
) -> None:
    stored = plan("calibrate", "--data", data, "--name", "selene", "--json", "-").document
    shipped = plan("simulate", *LLAMA, "--tp", "2", "--dp", "4").document
    fitted = plan("simulate", *LLAMA, "--tp", "2", "--dp", "4", "--calibration", "selene").document
    assert fitted["plan_hash"] == shipped["plan_hash"]
    assert fitted["prediction"]["memory"] == shipped["prediction"]["memory"]
    before, after = (d["prediction"]["breakdown_s"] for d in (shipped, fitted))
    ratio = after["matmul"] / before["matmul"]
    assert ratio == pytest.approx(stored["factors"]["matmul"], rel=1e-6)
    assert fitted["provenance"]["calibration"] == f"selene {stored['hash'][:19]}"
    low, high = fitted["prediction"]["step_time_interval_s"]
    step_s, factor = fitted["prediction"]["step_time_s"], 1 + stored["half_width"]
    assert (low, high) == pytest.approx((step_s / factor, step_s * factor))
    searched = plan(*LLAMA, "--calibration", "selene").document
    assert searched["provenance"]["calibration"].startswith("selene ")
    pair = ("llama-2-7b", "8xA100-80GB", "--stack", "megatron-deepspeed")
    known = plan("doctor", *pair, "--calibration", "selene", "--json", "-").document["calibration"]
    assert known["factors"]["matmul"] == stored["factors"]["matmul"]


@pytest.mark.parametrize(
    ("cluster", "stack", "dtype", "says"),
    [
        ("8xH100-80GB", "megatron-deepspeed", "bf16", "not on A100-SXM-80GB"),
        ("8xA100-80GB", "torchtitan", "bf16", "not with megatron-deepspeed"),
        ("8xA100-80GB", "megatron-deepspeed", "fp32", "not to 16-bit"),
    ],
)
def test_a_calibration_is_for_one_device_stack_and_format(
    plan: Plan, selene: str, cluster: str, stack: str, dtype: str, says: str
) -> None:
    given = ("--model", "gpt2", "--cluster", cluster, "--global-batch", "64", "--seq-len", "1024")
    found = plan(
        "simulate", *given, "--stack", stack, "--dtype", dtype, "--attention", "unfused",
        "--calibration", "selene",
    )  # fmt: skip
    assert found.code == 2
    assert says in found.err
    assert found.err.count("\n") == 1


def test_a_name_nearly_right_is_named(plan: Plan, selene: str) -> None:
    found = plan("validate", "--data", selene, "--calibration", "selen")
    assert (found.code, "nearest: selene" in found.err) == (2, True)


def test_validate_scores_only_what_was_not_fitted(plan: Plan, data: str) -> None:
    fit = plan("validate", "--data", data, "--calibration", "fit", "--json", "-").document
    source = fit["by_source"]["vtrain_multi"]
    assert (fit["calibration"], fit["rows_priced"]) == ("fit", 16)
    assert fit["rows_skipped"] == {"fitted on, so not scored": 10}
    assert len(source["fitted_on"]) == 10
    assert set(source["factors"]) == {"A100-SXM-80GB with megatron-deepspeed in 16-bit"}
    none = plan("validate", "--data", data, "--json", "-").document
    assert fit["median_ape"] < none["median_ape"]
    assert none["by_source"]["vtrain_multi"]["fitted_on"] == []
    plan("calibrate", "--data", data, "--name", "selene")
    named = plan("validate", "--data", data, "--calibration", "selene", "--json", "-").document
    assert named["rows_priced"] == 16
    assert named["mape"] == pytest.approx(fit["mape"])


def test_runs_of_elsewhere_are_left_out_of_a_named_validation(
    plan: Plan, selene: str, tmp_path: Path
) -> None:
    own = ("mpt-0001", "vtrain_multi")
    other = table(tmp_path, lambda row: row["id"].startswith(own), "other.csv")
    found = plan("validate", "--data", other, "--calibration", "selene", "--json", "-").document
    reasons = {"fitted on, so not scored": 10, "not of the device, stack and format of selene": 1}
    assert found["rows_skipped"] == reasons
    assert found["rows_priced"] == 16


def test_rows_of_several_devices_are_refused_by_name(plan: Plan, data: str, tmp_path: Path) -> None:
    mixed = table(tmp_path, lambda row: row["id"].startswith("mpt"), "mixed.csv")
    found = plan("calibrate", "--data", mixed, "--name", "mixed")
    assert found.code == 2
    assert "A100-SXM-40GB with torchtitan" in found.err
    assert "rows of one device, one stack and one format" in found.err


def test_a_stored_file_that_was_changed_by_hand_is_refused_in_one_line(
    plan: Plan, data: str
) -> None:
    path = Path(plan("calibrate", "--data", data, "--name", "a", "--json", "-").document["path"])
    document = json.loads(path.read_text(encoding="utf-8"))
    document["factors"]["matmul"] = -1
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match="matmul"):
        load_calibration("a")
    found = plan("simulate", *LLAMA, "--calibration", "a")
    assert (found.code, found.err.count("\n")) == (2, 1)


def test_rows_are_drawn_by_a_fixed_seed() -> None:
    runs = [run for run in published_runs() if run.source_name == "vtrain_multi"]
    rows = usable_rows(runs)
    one, other = (tuple(row.run.id for row in sample_rows(rows, 5)) for _ in range(2))
    assert one == other
    assert len(one) == 5
    assert list(one) == sorted(one)
    assert len(sample_rows(rows[:3], 5)) == 3


def test_steps_in_another_unit_are_refused_where_they_are_given(
    plan: Plan, data: str, tmp_path: Path
) -> None:
    rows = list(csv.DictReader(Path(data).read_text(encoding="utf-8").splitlines()))
    path = tmp_path / "milliseconds.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"step_time_s": 1000 * float(row["step_time_s"])} for row in rows)
    found = plan("calibrate", "--data", str(path), "--name", "ms")
    assert (found.code, "seconds a step" in found.err) == (2, True)
    assert not (tmp_path / "data").exists()


def test_rows_without_an_id_are_told_apart_and_repeated_ids_left_out(
    plan: Plan, data: str, tmp_path: Path
) -> None:
    text = Path(data).read_text(encoding="utf-8").replace("vtrain_multi-", "")
    head, *rows = text.splitlines()
    blank = [row[row.index(",") :] for row in rows]
    unnamed, repeated = tmp_path / "blank.csv", tmp_path / "repeated.csv"
    unnamed.write_text("\n".join([head, *blank]) + "\n", encoding="utf-8")
    repeated.write_text("\n".join([head, *(f"one{row}" for row in blank)]), encoding="utf-8")
    fit = plan("validate", "--data", str(unnamed), "--calibration", "fit", "--json", "-").document
    assert (fit["rows_priced"], set(fit["by_source"])) == (16, {"unnamed"})
    found = plan("validate", "--data", str(repeated), "--json", "-").document
    assert found["rows_read"] == found["rows_priced"] + sum(found["rows_skipped"].values())
    assert (found["rows_priced"], found["by_source"]["one"]["rows_read"]) == (1, 1)
    assert any(why.startswith("line 3: id") for why in found["rows_skipped"])
    fit_refused = plan("calibrate", "--data", str(repeated), "--name", "one")
    assert (fit_refused.code, "line 3: id" in fit_refused.err) == (2, True)


def test_a_row_alone_in_its_place_is_not_scored_as_calibrated(
    plan: Plan, data: str, tmp_path: Path
) -> None:
    alone = table(tmp_path, lambda row: row["id"].startswith("titan"), "titan.csv")
    few = plan("validate", "--data", alone, "--calibration", "fit", "--json", "-").document
    scored = few["rows_priced"] + few["rows_skipped"].get("fitted on, so not scored", 0)
    left = few["rows_skipped"].get("too few rows of its device, stack and format to fit", 0)
    assert scored + left == plan("validate", "--data", alone, "--json", "-").document["rows_priced"]


def test_a_calibration_of_elsewhere_is_not_overwritten(
    plan: Plan, data: str, tmp_path: Path
) -> None:
    assert plan("calibrate", "--data", data, "--name", "selene").code == 0
    kept = {path: path.read_bytes() for path in calibration_folder().iterdir()}
    other = table(tmp_path, lambda row: row["id"].startswith("bloom"), "bloom.csv")
    assert plan("calibrate", "--data", other, "--name", "selene").code == 0  # the same place
    elsewhere = table(
        tmp_path,
        lambda row: row["id"].startswith("mpt") and row["hardware"].startswith("H100"),
        "mpt.csv",
    )
    before = {path: path.read_bytes() for path in calibration_folder().iterdir()}
    refused = plan("calibrate", "--data", elsewhere, "--name", "selene")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--name" in refused.err
    assert "nearest: selene-2" in refused.err
    assert {path: path.read_bytes() for path in calibration_folder().iterdir()} == before
    assert len(before) == len(kept) == 1
