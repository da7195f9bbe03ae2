"""Only a finished GPU report and its profile become repository files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu.results import newest_report
from gpu.ship import main, ship
from kernel_doubles.device_profiles import DEVICE, device_profile

from shardwright.datasets.measured.shipped_profiles import shipped_profiles
from shardwright.spec.codec import dump_pretty, to_document
from shardwright.spec.errors import InputError

TOLD = {"torch": "2.11.0", "cuda": "13.0", "driver": "580.65"}
PART: dict[str, Any] = {"rows": {"a": {}}, "left_out": [], "failed": {"b": "ValueError"}}
REPORT: dict[str, Any] = {
    "reduced": False,
    "device": "NVIDIA of a test",
    "catalogue": DEVICE,
    "date": "2026-01-02",
    "stages": {"kernels": PART, "profile": PART},
}


def finished(out: Path, **changed: Any) -> Path:
    out.mkdir(exist_ok=True)
    (out / "report.json").write_text(json.dumps({**REPORT, **changed}), encoding="utf-8")
    profile = replace(device_profile(1), machine=TOLD)
    (out / "profile.json").write_text(dump_pretty(to_document(profile)), encoding="utf-8")
    return out


def test_a_finished_report_is_shipped_with_its_profile(tmp_path: Path) -> None:
    out, reports, profiles = (tmp_path / name for name in ("out", "reports", "profiles"))
    profiles.mkdir()
    written = ship(finished(out), reports, profiles)
    assert written == [profiles / f"{DEVICE}-1.json", reports / f"{DEVICE}-2026-01-02.json"]
    assert shipped_profiles(profiles) == (replace(device_profile(1), machine=TOLD),)
    newest = newest_report(reports)
    assert newest == written[1]
    assert json.loads(written[1].read_text(encoding="utf-8")) == REPORT


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reduced": True}, "the reduced form"),
        ({"catalogue": None}, "a device of the catalogue"),
        ({"catalogue": "T4-16GB"}, "the report's T4-16GB"),
        ({"stages": {"kernels": {**PART, "left_out": ["c"]}}}, "not finished: kernels"),
        ({"stages": {"kernels": PART, "profile": {**PART, "rows": {}}}}, "not finished: profile"),
    ],
)
def test_what_shows_nothing_is_not_shipped(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        ship(finished(tmp_path / "out", **changed), tmp_path / "reports", tmp_path)
    assert not (tmp_path / "reports").exists()
    assert not list(tmp_path.glob("*.json"))


def test_without_a_report_one_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("allowed: the folder of a finished report")
