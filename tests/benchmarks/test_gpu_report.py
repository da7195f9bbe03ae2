"""The GPU report on a core: resumption, budgets, failures, the whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu.child import WHOLE, good, make_setting, measure_stage, rows_of
from gpu.entry import FULL, TINY, Entry, Make, Work, collected
from gpu.kernel_table import measure
from gpu.report_file import document, markdown
from gpu.stage import Claim, Measurement, Setting, Stage, Verdict, stages
from gpu.state import Rows
from harness.paths import BENCHMARKS

from shardwright.kernels.dispatch import Dispatcher

MIB = 2**20
ABOUT = {"device": "cpu", "versions": {}, "date": "2026-01-01", "commit": "unknown"}


def toy(name: str, calls: list[str], **more: Any) -> Stage:
    """A stage of three rows, the second of which fails as often as ``more`` says."""
    failures = more.get("failures", 0)

    def one(key: str) -> dict[str, str]:
        calls.append(key)
        if key == "b" and calls.count("b") <= failures:
            raise ValueError("a deliberate mistake")
        return {"key": key}

    def rows(setting: Setting) -> list[Measurement]:
        if more.get("broken"):
            raise LookupError("nothing to measure")
        return [Measurement(key, partial(one, key)) for key in "abc"]

    def judge(found: Mapping[str, Mapping[str, Any]]) -> Verdict | str:
        return Verdict(f"{len(found)} rows", len(found) == 3, {"rows": len(found)})

    claims = (Claim(name=f"{name} rows", target="three", judge=judge),)
    return Stage(
        name=name,
        order=0,
        budget_s=9,
        reduced_s=9,
        shows="A toy.",
        rows=rows,
        tables=lambda found: [],
        claims=claims,
    )


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return make_setting(tmp_path, reduced=True)


def test_stages_keep_to_the_limits() -> None:
    found = stages()
    assert [stage.name for stage in found] == [
        "smoke", "ceilings", "kernels", "profile", "end_to_end", "prediction",
    ]  # fmt: skip
    assert sum(stage.budget_s for stage in found) <= 25 * 60
    assert max(stage.budget_s for stage in found) <= 10 * 60
    names = [claim.name for stage in found for claim in stage.claims]
    assert len(names) == len(set(names)) >= 9


def test_rows_are_measured_once_and_failed_ones_again(setting: Setting, tmp_path: Path) -> None:
    calls: list[str] = []
    stage = toy("toy", calls, failures=1)
    for run, expected in (("1", "abc"), ("1", "abc"), ("2", "abcb"), ("3", "abcb")):
        measure_stage(stage, setting, Rows(tmp_path, "toy", "x"), run)
        assert "".join(calls) == expected
    assert list(good(Rows(tmp_path, "toy", "x"))) == ["a", "b", "c"]


def test_rows_of_other_code_or_devices_are_dropped(setting: Setting, tmp_path: Path) -> None:
    calls: list[str] = []
    for identity in ("x", "y", "y"):
        measure_stage(toy("toy", calls), setting, Rows(tmp_path, "toy", identity), "1")
    assert "".join(calls) == "abcabc"


def test_a_torn_line_is_measured_again(setting: Setting, tmp_path: Path) -> None:
    calls: list[str] = []
    measure_stage(toy("toy", calls), setting, Rows(tmp_path, "toy", "x"), "1")
    path = tmp_path / "toy.jsonl"
    text = path.read_text()
    path.write_text(text[: text.rfind('{"key": "c"') + 20])
    again = Rows(tmp_path, "toy", "x")
    assert again.unfinished() == "c"
    measure_stage(toy("toy", calls), setting, again, "1")
    assert "".join(calls) == "abcc"
    assert again.unfinished() is None


def test_a_killed_process_leaves_its_rows(tmp_path: Path) -> None:
    """The second row ends the process; the next run measures what is not there."""
    text = f"""
import os, sys
from functools import partial
from pathlib import Path
from gpu.child import make_setting, measure_stage
from gpu.stage import Measurement, Stage
from gpu.state import Rows

def one(key):
    print(key, flush=True)
    if key == "b" and sys.argv[1] == "1":
        os.kill(os.getpid(), 9)
    return {{"key": key}}

stage = Stage(name="toy", order=0, budget_s=9, reduced_s=9, shows="", tables=list,
              rows=lambda setting: [Measurement(key, partial(one, key)) for key in "abc"])
folder = Path({str(tmp_path)!r})
measure_stage(stage, make_setting(folder, True), Rows(folder, "toy", "x"), sys.argv[1])
"""
    said = []
    for run in ("1", "2"):
        command = [sys.executable, "-c", text, run]
        environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS), "PYTHONSAFEPATH": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        said.append((done.returncode, done.stdout.split()))
    assert said == [(-signal.SIGKILL, ["a", "b"]), (0, ["b", "c"])]


def test_a_spent_budget_stops_and_says_what_was_left_out(setting: Setting, tmp_path: Path) -> None:
    calls: list[str] = []
    spent = Setting(
        device=setting.device, reduced=True, out=tmp_path, facts={}, known=setting.known, end_s=0.0
    )
    stage = toy("toy", calls)
    measure_stage(stage, spent, rows_of(tmp_path, "toy", "x"), "1")
    found = document([stage], tmp_path, "x", ABOUT, reduced=True)["stages"]["toy"]
    assert calls == []
    assert found["left_out"] == ["a", "b", "c"]
    assert found["failed"] == {}
    assert "left out, the budget was spent: a, b, c" in markdown(
        document([stage], tmp_path, "x", ABOUT, reduced=True)
    )


def test_a_stage_that_raises_stops_no_other(setting: Setting, tmp_path: Path) -> None:
    calls: list[str] = []
    both = [toy("first", calls, broken=True), toy("second", calls, failures=9)]
    for stage in both:
        measure_stage(stage, setting, rows_of(tmp_path, stage.name, "x"), "1")
    parts = document(both, tmp_path, "x", ABOUT, reduced=False)["stages"]
    assert parts["first"]["failed"] == {WHOLE: "LookupError: nothing to measure"}
    assert parts["first"]["claims"][0]["outcome"] == "UNMEASURED"
    assert parts["second"]["failed"] == {"b": "ValueError: a deliberate mistake"}
    assert list(parts["second"]["rows"]) == ["a", "c"]
    assert parts["second"]["claims"][0]["outcome"] == "MISS"


def test_a_claim_is_judged_on_a_device_only(setting: Setting, tmp_path: Path) -> None:
    stage = toy("toy", [])
    measure_stage(stage, setting, rows_of(tmp_path, "toy", "x"), "1")
    outcomes = [
        document([stage], tmp_path, "x", ABOUT, reduced)["stages"]["toy"]["claims"][0]["outcome"]
        for reduced in (False, True)
    ]
    assert outcomes == ["PASS", "UNMEASURED"]


def test_entries_count_the_bytes_of_their_operands() -> None:
    """Each operand is read or written at least once, so fewer bytes than that are a mistake."""
    for entry in collected(TINY):
        operands = entry.make(Make(torch.device("cpu"), TINY.dtype, 0))
        large = [x for x in operands if isinstance(x, torch.Tensor) and x.is_floating_point()]
        least = sum(x.nbytes for x in large if x.numel() > 4 * TINY.activations[0][1])
        assert entry.work.bytes >= least, entry.key
        assert (entry.bound == "matmul") == (entry.work.flops > 0), entry.key


def test_what_travels_in_fewer_bits_moves_its_operands_and_results(tmp_path: Path) -> None:
    """Every number once: quantized there, back, summed over peers, added in place."""
    setting = make_setting(tmp_path, reduced=True)
    found = [entry for entry in collected(TINY) if entry.family.startswith("block_")]
    assert {entry.family for entry in found} == {
        "block_quantize",
        "block_dequantize",
        "block_dequantize_sum",
        "block_dequantize_add",
    }
    for entry in found:
        operands = entry.make(Make(setting.device, TINY.dtype, 0))
        result = entry.ours(Dispatcher(), *operands)
        outputs = [result] if isinstance(result, torch.Tensor) else list(result)
        numbers = sum(x.nbytes for x in operands)
        written = sum(x.numel() * (4 if x.is_floating_point() else 1) for x in outputs)
        assert entry.work.bytes == numbers + written, entry.key
        if entry.error_limit is not None:
            assert measure(entry, TINY, setting)["error"] <= entry.error_limit, entry.key


def test_memory_bound_entries_are_as_large_as_the_target_asks() -> None:
    found = [entry for entry in collected(FULL) if entry.bound == "memory" and entry.judged]
    assert {entry.family for entry in found} >= {"rms_norm", "layer_norm", "swiglu", "rope"}
    assert all(entry.work.bytes >= 2 * 64 * MIB for entry in found)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).square().sum()


def product_entry(**more: Any) -> Entry:
    """An entry of products: forward and backward at once, peaks compared."""
    side = 48
    given: dict[str, Any] = {
        "family": "linear_cross_entropy",
        "case": "a toy",
        "mode": "both",
        "make": lambda make: (make.normal(side, side), make.normal(side, side)),
        "ours": lambda kernels, x, weight: _product(x, weight),
        "eager": _product,
        "work": Work(3 * side * side * 4, 3 * 2 * side**3),
        "bound": "matmul",
        "peak": True,
    }
    return Entry(**{**given, **more})


def test_an_entry_is_held_against_its_reference_and_floor(tmp_path: Path) -> None:
    plain = make_setting(tmp_path, reduced=True)
    ceilings = {"copy": {"bytes_per_s": 1e9}, "matmul": {"flops_per_s": 1e9}}
    setting = Setting(
        device=plain.device, reduced=True, out=tmp_path, facts={}, known=lambda name: ceilings
    )
    found = measure(product_entry(), TINY, setting)
    assert found["floor_s"] == pytest.approx(6 * 48**3 / 1e9)
    assert found["error"] == 0
    assert found["ours"]["peak_bytes"] is None  # of a core
    assert found["ours"]["runs"] >= 10
    assert "not compiled" in found["compiled"]["why"]
    assert json.loads(json.dumps(found)) == found
    wrong = product_entry(ours=lambda kernels, x, weight: _product(x, weight) * 1.1)
    with pytest.raises(ValueError, match=r"off by 1\.0e-01 from the reference"):
        measure(wrong, TINY, setting)
    with pytest.raises(ValueError, match="off by nan"):
        measure(product_entry(ours=lambda kernels, x, w: _product(x, w) * torch.nan), TINY, setting)


def started(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command as a person starts it, from elsewhere and with a bare environment."""
    script = BENCHMARKS / "gpu" / "report.py"
    command = [sys.executable, str(script), "--reduced", "--out", str(out), *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, cwd=out, **pipes)  # type: ignore[call-overload,no-any-return]


def kept(out: Path, stage: str) -> list[str]:
    """The lines of measured rows."""
    path = out / "rows" / f"{stage}.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in text.splitlines(keepends=True) if '"status": "ok"' in line]


@pytest.mark.evidence
@pytest.mark.distributed
@pytest.mark.timeout(900)  # a core that others use, too, is slow; nothing here is timed
def test_the_reduced_report_goes_on_after_a_kill_and_is_whole(tmp_path: Path) -> None:
    first = started(tmp_path)
    while len(kept(tmp_path, "kernels")) < 3:
        assert first.poll() is None, first.stdout and first.stdout.read()
        time.sleep(0.05)
    first.kill()
    first.communicate()
    before = [line for line in kept(tmp_path, "kernels") if line.endswith("\n")]
    second = started(tmp_path)
    said = second.communicate()[0]
    assert second.returncode == 0, said
    assert kept(tmp_path, "kernels")[: len(before)] == before
    assert "smoke: FSDP2" not in said  # it was measured before the kill
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["reduced"]
    assert report["device"] == "cpu"
    assert list(report["stages"]) == [stage.name for stage in stages()]
    for name, part in report["stages"].items():
        assert part["failed"] == {}, name
        assert part["left_out"] == [], name
        assert part["rows"], name
        assert part["tables"][0]["rows"], name
        assert {claim["outcome"] for claim in part["claims"]} <= {"UNMEASURED"}
        assert json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")) == part
        assert part["shows"] in (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    keys = [e.key for e in sorted(collected(TINY), key=lambda entry: not entry.judged)]
    assert list(report["stages"]["kernels"]["rows"]) == keys
    predicted = report["stages"]["prediction"]["rows"]
    assert sum("step_error" in row for row in predicted.values()) == 3
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert page in said
    assert (tmp_path / "profile.json").exists()


def test_what_cannot_be_measured_is_one_line(tmp_path: Path) -> None:
    cases = {("--stage", "nothing"): "no stage nothing; there are smoke"}
    for arguments, message in cases.items():
        done = started(tmp_path, *arguments)
        said = done.communicate()[0]
        assert done.returncode == 2
        assert message in said.splitlines()[-1]
