"""``plan calibrate`` on published peaks of memory, and what every verb makes of it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.datasets.published.runs import MEMORY_TABLE, TABLE
from shardwright.spec.cluster.calibration import MEMORY_MEANINGS

Plan = Callable[..., Any]
LLAMA = (
    "--model", "llama-2-7b", "--cluster", "8xA100-80GB", "--global-batch", "64",
    "--seq-len", "4096", "--stack", "megatron", "--json", "-",
)  # fmt: skip
PEAKS = ("mlmtest-01", "mlmtest-02")


def part(source: Path, target: Path, keep: Callable[[dict[str, str]], bool]) -> str:
    """Some rows of a bundled table as a file of their own."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if keep(row))
    return str(target)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """The 26 multi-node runs of vTrain, which print times."""
    return part(TABLE, tmp_path / "runs.csv", lambda row: row["id"].startswith("vtrain_multi"))


@pytest.fixture
def peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Functional tests of Megatron-LM on A100 nodes, which print peaks of memory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def keep(row: dict[str, str]) -> bool:
        return row["hardware"] == "A100" and row["id"].startswith(PEAKS)

    return part(MEMORY_TABLE, tmp_path / "memory.csv", keep)


@pytest.fixture
def same_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Peaks of BLOOM, which the stack of vTrain's runs trained too."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return part(MEMORY_TABLE, tmp_path / "bloom.csv", lambda row: row["id"].startswith("bloom"))


def test_ten_peaks_are_fitted_and_the_others_come_nearer(plan: Plan, peaks: str) -> None:
    found = plan("calibrate", "--data", peaks, "--name", "cluster", "--json", "-").document
    assert (found["device"], found["stack"]) == ("A100-SXM-80GB", "megatron")
    assert found["fitted_on"] == []
    memory, held = found["memory"], found["held_out"]
    assert len(memory["fitted_on"]) == 10
    assert held["rows"] == found["rows_usable"] - 10
    assert held["median_ape"] < held["shipped_median_ape"]
    assert held["median_ape"] < 0.03
    shown = plan("calibrate", "--data", peaks, "--name", "cluster").out
    assert all(name in shown for name in MEMORY_MEANINGS)


def test_memory_and_times_are_calibrated_under_one_name(
    plan: Plan, data: str, same_stack: str
) -> None:
    times = plan("calibrate", "--data", data, "--name", "selene", "--json", "-").document
    both = plan("calibrate", "--data", same_stack, "--name", "selene", "--json", "-").document
    assert both["factors"] == times["factors"]
    again = plan("calibrate", "--data", data, "--name", "selene", "--json", "-").document
    assert again["hash"] == both["hash"]


def test_a_calibration_of_memory_changes_bytes_and_feasibility_and_no_time(
    plan: Plan, peaks: str
) -> None:
    stored = plan("calibrate", "--data", peaks, "--name", "cluster", "--json", "-").document
    shipped = plan("simulate", *LLAMA, "--tp", "2", "--dp", "4").document
    fitted = plan("simulate", *LLAMA, "--tp", "2", "--dp", "4", "--calibration", "cluster").document
    for key in ("step_time_s", "step_time_interval_s"):
        assert fitted["prediction"][key] == shipped["prediction"][key]
    before, after = (d["prediction"]["memory"][0] for d in (shipped, fitted))
    times = stored["memory"]["constants"]["states"]
    assert after["by"]["optimizer"] == pytest.approx(before["by"]["optimizer"] * times, abs=1)
    assert sum(after["by"].values()) == after["reserved_bytes"]
    assert fitted["provenance"]["calibration"] == f"cluster {stored['hash'][:19]}"
    searched = plan(*LLAMA, "--calibration", "cluster").document
    assert searched["provenance"]["calibration"].startswith("cluster ")
    assert searched["prediction"]["feasible"]


def test_memory_is_for_any_format_of_products_and_times_for_theirs(
    plan: Plan, data: str, same_stack: str
) -> None:
    plan("calibrate", "--data", same_stack, "--name", "cluster")
    given = ("simulate", *LLAMA, "--dtype", "fp32", "--attention", "unfused")
    given += ("--stack", "megatron-deepspeed")
    named = plan(*given, "--calibration", "cluster")
    assert (named.code, named.document["provenance"]["calibration"][:8]) == (0, "cluster ")
    both = plan("calibrate", "--data", data, "--name", "cluster", "--json", "-").document
    assert (both["products"], len(both["memory"]["fitted_on"])) == ("16-bit", 10)
    found = plan(*given, "--calibration", "cluster")
    assert (found.code, "not to 16-bit" in found.err) == (2, True)
    flags = ("--data", same_stack, "--calibration", "cluster", "--json", "-")
    again = plan("validate", *flags).document
    assert len(again["by_source"]["bloom"]["fitted_on"]) == 10


def test_validate_of_peaks_scores_only_what_was_not_fitted(plan: Plan, peaks: str) -> None:
    fit = plan("validate", "--data", peaks, "--calibration", "fit", "--json", "-").document
    source = fit["by_source"]["mlmtest"]
    assert (fit["metric"], len(source["fitted_on"])) == ("peak_memory", 10)
    assert fit["rows_skipped"]["fitted on, so not scored"] == 10
    assert set(source["factors"]["A100-SXM-80GB with megatron"]) == set(MEMORY_MEANINGS)
    assert source["counted"] == {"allocator_peak": source["rows_priced"]}
    plan("calibrate", "--data", peaks, "--name", "cluster")
    named = plan("validate", "--data", peaks, "--calibration", "cluster", "--json", "-").document
    assert named["median_ape"] == pytest.approx(fit["median_ape"])
    shown = plan("validate", "--data", peaks, "--calibration", "fit").out
    assert all(name in shown for name in ("assumed:", "fitted on", "false fit", "allocator's peak"))


def test_a_calibration_of_the_other_kind_is_refused(plan: Plan, data: str, peaks: str) -> None:
    plan("calibrate", "--data", data, "--name", "times")
    plan("calibrate", "--data", peaks, "--name", "bytes")
    for table_, name, says in ((peaks, "times", "of memory"), (data, "bytes", "of times")):
        found = plan("validate", "--data", table_, "--calibration", name)
        assert found.code == 2
        assert says in found.err
        assert found.err.count("\n") == 1


def test_peaks_of_several_devices_and_in_another_unit_are_refused(
    plan: Plan, peaks: str, tmp_path: Path
) -> None:
    several = plan("calibrate", "--data", str(MEMORY_TABLE), "--name", "all")
    assert several.code == 2
    assert "rows of one device and one stack" in several.err
    rows = list(csv.DictReader(Path(peaks).read_text(encoding="utf-8").splitlines()))
    path = tmp_path / "mib.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"peak_mem_gib": 1024 * float(row["peak_mem_gib"])} for row in rows)
    found = plan("calibrate", "--data", str(path), "--name", "mib")
    assert (found.code, "GiB of a device" in found.err) == (2, True)
    assert not (tmp_path / "data").exists()
