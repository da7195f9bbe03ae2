"""Device names, wheels, verdicts, and a GPU report as evidence."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu import bootstrap, wheels
from gpu.child import make_setting
from gpu.machine_facts import catalogue_name
from gpu.model_case import plan_of, predicted, problem_of
from gpu.results import SEVERAL, newest_report, to_results
from gpu.stage import stages
from gpu.stages.prediction import TINY
from gpu.state import Result, Rows
from gpu.wheels import Group, Package
from harness.shapes import Row

from shardwright.api.planning.report import simulate_plan

GB = 10**9


@pytest.mark.parametrize(
    ("said", "size", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 85 * GB, "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", 85 * GB, "H100-PCIE-80GB"),
        ("NVIDIA H200", 150 * GB, "H200-SXM-141GB"),
        ("NVIDIA A100-SXM4-40GB", 42 * GB, "A100-SXM-40GB"),
        ("NVIDIA A100-SXM4-80GB", 85 * GB, "A100-SXM-80GB"),
        ("NVIDIA A100 80GB PCIe", 85 * GB, "A100-PCIE-80GB"),
        ("NVIDIA B200", 191 * GB, "B200-SXM-180GB"),
        ("NVIDIA GeForce RTX 4090", 25 * GB, "RTX-4090-24GB"),
        ("NVIDIA L40S", 48 * GB, "L40S-48GB"),
        ("A device of tomorrow", 10 * GB, None),
    ],
)
def test_a_device_is_found_in_the_catalogue(said: str, size: int, name: str | None) -> None:
    assert catalogue_name(said, size) == name


def test_a_device_that_is_not_in_the_catalogue_is_one_line(tmp_path: Path) -> None:
    """Before anything is measured, in every stage that needs prices."""
    plain = make_setting(tmp_path, reduced=True)
    about = {"device": "NVIDIA Tomorrow", "cluster": None, "catalogue": None}
    unknown = replace(plain, facts=about)
    (profile,) = (stage for stage in stages() if stage.name == "profile")
    (row,) = profile.rows(unknown)
    with pytest.raises(ValueError, match=r"^the catalogue has no NVIDIA Tomorrow$"):
        row.run()
    with pytest.raises(ValueError, match=r"^the catalogue has no NVIDIA Tomorrow$"):
        problem_of(TINY, unknown)


def test_predicted_peaks_of_a_device_hold_the_workspaces_of_libraries(tmp_path: Path) -> None:
    plain = make_setting(tmp_path, reduced=True)
    case = replace(TINY, heads=4, hidden=256, ffn=512, vocab=512, seq_len=64)
    for cluster, beside in (("1xH100-SXM-80GB", 64 * 2**20), ("local:1", 0)):
        device = torch.device("cpu" if beside == 0 else "cuda", 0)
        setting = replace(plain, facts={"cluster": cluster, "device": "x"}, device=device)
        problem = problem_of(case, setting)
        plan = plan_of(problem, 2)
        found = simulate_plan(plan, problem.stack, None, ()).report.prediction.memory[0]
        assert predicted(plan, problem)["peak_bytes"] == found.allocated_bytes + beside
        assert found.by["workspace"] >= beside


def test_every_wheel_has_a_pinned_version_and_nothing_is_built() -> None:
    required = wheels.requirements()
    assert len(required) == sum(len(group.packages) for group in wheels.GROUPS)
    command = wheels.fetch_command("3.12", "x86_64", Path("somewhere"))
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)
    assert command[-len(required) :] == required
    assert not any(name.startswith(("torch", "triton", "numpy")) for name in required)
    (liger,) = (p for group in wheels.GROUPS for p in group.packages if p.name == "liger-kernel")
    assert liger.least == "0.8.5"  # whose private functions our kernels call


def test_an_interpreter_without_what_no_wheel_holds_is_one_line() -> None:
    bootstrap.check_given()
    given = (Package("pytest", "999"), Package("no-such-package-of-ours", "1"), Package("pip", "1"))
    with pytest.raises(bootstrap.MissingError) as raised:
        bootstrap.check_given(given)
    said = str(raised.value)
    assert said.startswith(f"{sys.executable} needs pytest >= 999 (has {pytest.__version__}), ")
    assert "no-such-package-of-ours >= 1 (has none); name a Python" in said
    assert "pip >=" not in said


def test_versions_are_compared_as_numbers() -> None:
    assert bootstrap.is_here(Package("pytest", "8.3"))
    assert not bootstrap.is_here(Package("pytest", "999"))
    assert not bootstrap.is_here(Package("no-such-package-of-ours", "0"))
    assert bootstrap._numbers("2.11.0+cu130") == (2, 11)
    assert bootstrap._numbers("0.10.0") > bootstrap._numbers("0.9")


def make_wheel(folder: Path, name: str) -> None:
    """A wheel of one module."""
    folder.mkdir(exist_ok=True)
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "HERE = True\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", tag)
        lines = (f"{name}.py,,", f"{about}/METADATA,,", f"{about}/WHEEL,,", f"{about}/RECORD,,")
        wheel.writestr(f"{about}/RECORD", "\n".join(lines) + "\n")


def test_missing_packages_come_from_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, optional = Package("toy_wheel_of_ours", "1.0"), Package("never_there", "1.0")
    monkeypatch.setattr(bootstrap, "WHEELS", tmp_path / ".wheels")
    groups = (Group((ours,), True), Group((optional,), False), Group((Package("pip", "1"),), True))
    monkeypatch.setattr(bootstrap, "GROUPS", groups)
    versions = {"toy_wheel_of_ours": "1.0", "never_there": "1.0"}
    monkeypatch.setattr(bootstrap, "pinned", lambda: versions)
    with pytest.raises(bootstrap.MissingError, match="toy_wheel_of_ours not installed"):
        bootstrap.environment(tmp_path / "out")
    make_wheel(tmp_path / ".wheels", "toy_wheel_of_ours")
    found = bootstrap.environment(tmp_path / "out")
    path = [Path(part) for part in found["PYTHONPATH"].split(":")]
    assert (path[0] / "shardwright" / "py.typed").exists()
    assert path[1] == bootstrap.BENCHMARKS
    assert (path[2] / "toy_wheel_of_ours.py").exists()
    assert "goes on without never_there" in capsys.readouterr().err
    (tmp_path / ".wheels" / "toy_wheel_of_ours-1.0-py3-none-any.whl").unlink()
    assert bootstrap.environment(tmp_path / "out") == found  # unpacked before
    assert found["XDG_DATA_HOME"].startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"a": 1.0, "b": {"c": [2, float("nan")]}}, "b.c[1] is nan"),
        ({"a": float("inf")}, "a is inf"),
        ({"a": torch.float32}, "Object of type dtype is not JSON serializable"),
    ],
)
def test_a_row_that_cannot_be_kept_is_a_failed_row(
    tmp_path: Path, values: dict[str, Any], why: str
) -> None:
    rows = Rows(tmp_path, "toy", "x")
    rows.keep(Result("a", "ok", "", 1.0, values, "1"))
    (found,) = rows.results().values()
    assert (found.status, found.values) == ("failed", {})
    assert found.why == f"its values cannot be kept: {why}"


CLAIMS = [("speed", "at least 1"), ("size", "at most 2")]


def test_without_a_report_every_row_is_unmeasured() -> None:
    found = to_results(None, CLAIMS, ["expert_gate"])
    family = "kernels of the family expert_gate"
    assert [row.name for row in found.rows] == ["speed", "size", family, *SEVERAL]
    assert {row.outcome for row in found.rows} == {"UNMEASURED"}
    assert all(why.startswith("unmeasured, runs on >= 2 GPUs") for why in SEVERAL.values())


def test_a_report_is_evidence(tmp_path: Path) -> None:
    claim = {
        "name": "speed",
        "figure": "2",
        "outcome": "PASS",
        "target": "at least 1",
        "values": {},
    }
    table = {"title": "t", "columns": ["a"], "rows": [["1"]]}
    rows = {"expert_gate forward, x": {}}
    part = {
        "rows": rows,
        "failed": {"x": "ValueError"},
        "left_out": ["y"],
        "tables": [table],
        "claims": [claim],
    }
    whole = {"reduced": False, "device": "NVIDIA H200", "date": "2026-01-02", "commit": "abc"}
    whole |= {"versions": {"torch": "2.11.0"}, "driver": "1", "stages": {"kernels": part}}
    for name in ("H200-2026-01-02", "H100-2025-12-31"):
        (tmp_path / f"{name}.json").write_text(json.dumps(whole))
    path = newest_report(tmp_path)
    assert path is not None
    assert path.stem == "H200-2026-01-02"
    found = to_results(path, CLAIMS, ["expert_gate", "expert_order"])
    about, speed, size, order, *several = found.rows
    assert "NVIDIA H200, 2026-01-02, commit abc, driver 1, torch 2.11.0" in about.figure
    assert speed == Row(**claim)
    assert (size.outcome, size.figure) == ("UNMEASURED", "not in the report")
    assert (order.name, order.figure) == (
        "kernels of the family expert_order",
        "not in the report",
    )
    assert [row.name for row in several] == list(SEVERAL)
    gaps = [("kernels", "x", "ValueError"), ("kernels", "y", "the budget was spent")]
    assert found.tables[-1].rows == gaps
    (tmp_path / "tiny-2026-02-01.json").write_text(json.dumps({**whole, "reduced": True}))
    with pytest.raises(ValueError, match="reduced form"):
        to_results(newest_report(tmp_path), CLAIMS)
