"""The document of a run beside its times: MFU with its terms, kernels, traces."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.execution import execution
from shardwright.api.python import simulate
from shardwright.api.terminal.console import console
from shardwright.api.terminal.run import kernels_text, print_execution
from shardwright.profiler.store.profiles import StoredProfiles
from shardwright.spec.errors import InputError
from shardwright.spec.report.report import BREAKDOWN_TERMS

Execute = Callable[..., dict[str, Any]]
TYPED = ("--global-batch", "4", "--seq-len", "32", "--pin", "dp=2", "--pin", "pp=1")
"""Pinned, for the search is not what is tested."""


def choice(family: str, picked: str, dtype: str = "float32", **passed_over: str) -> dict[str, Any]:
    return {
        "family": family,
        "device": "cpu",
        "dtype": dtype,
        "shape": [8, 64],
        "picked": picked,
        "passed_over": passed_over,
    }


KERNELS = [
    choice("rms_norm", "eager", liger="a core, for which Triton compiles nothing"),
    {
        **choice("rms_norm", "eager", liger="a core, for which Triton compiles nothing"),
        "shape": [8, 128],
    },
    choice("swiglu", "liger"),
]


@pytest.fixture
def execute(monkeypatch: pytest.MonkeyPatch) -> Execute:
    """The execute document of a plan whose run reports these figures."""

    def run(plan: Any, options: Any = None, **measured: Any) -> dict[str, Any]:
        stages = len(plan.plan.program.stages)
        ranks = sum(stage.device_count for stage in plan.plan.program.stages)
        breakdown = dict.fromkeys(BREAKDOWN_TERMS, 0.0)
        asked: dict[str, Any] = {}

        def fake(plan_: Any, payload: Any, on_event: Any) -> dict[str, Any]:
            asked.update(payload)
            return {
                "measured": {
                    "step_time_s": 0.25,
                    "tokens_per_s_per_device": 1.0,
                    "losses": [5.0],
                    "allocated_bytes": [2**20] * stages,
                    **measured,
                },
                "rss_growth_bytes": [0] * ranks,
                "traced": {"step_time_s": 0.25, "breakdown_by_rank_s": [breakdown] * ranks},
                "kernels": KERNELS,
            }

        monkeypatch.setattr(execution, "run_plan", fake)
        made = execution.execute_plan(
            plan.plan,
            plan.stack,
            plan.measured,
            options or execution.ExecuteOptions(),
            lambda event: None,
        )
        return {**made, "asked": asked}

    return run


@pytest.mark.parametrize(
    ("cluster", "flags"),
    [
        ("local:2", {"dtype": "fp32"}),
        ("8xH100", {"tp": 2, "pp": 2, "recompute": "full"}),
        ("2x8xA100", {"shard": "zero3"}),
    ],
)
def test_step_time_times_peak_times_mfu_is_flops(
    cluster: str, flags: dict[str, Any], execute: Execute
) -> None:
    plan = simulate("gpt2", cluster, global_batch=16, seq_len=256, calibration="none", **flags)
    document = execute(plan)
    measured, predicted = document["measured"], document["predicted"]
    at_peak = measured["step_time_s"] * measured["peak_flops_per_s"]
    assert at_peak * measured["mfu"] == pytest.approx(measured["flops"])
    assert at_peak * measured["hfu"] == pytest.approx(measured["executed_flops"])
    slower = measured["step_time_s"] / predicted["step_time_s"]
    assert predicted["mfu"] == pytest.approx(measured["mfu"] * slower)
    assert predicted["hfu"] == pytest.approx(measured["hfu"] * slower)
    assert measured["flops_convention"] == predicted["flops_convention"]
    assert (measured["hfu"] > 1.2 * measured["mfu"]) == ("recompute" in flags)
    devices = sum(stage.device_count for stage in plan.plan.program.stages)
    rate = measured["flops"] / measured["step_time_s"] / devices
    assert measured["flops_per_s_per_device"] == pytest.approx(rate)
    json.dumps(document, allow_nan=False)


def test_reserved_bytes_are_told_where_an_allocator_keeps_memory(execute: Execute) -> None:
    plan = simulate("gpt2", "8xH100", global_batch=16, seq_len=256, pp=2)
    assert "reserved_bytes" not in execute(plan)["measured"]
    measured = execute(plan, reserved_bytes=[5, 7])["measured"]
    assert (measured["reserved_bytes"], measured["reserved_bytes_by_stage"]) == (7, [5, 7])


def test_the_table_shows_mfu_with_its_formula_and_the_kernels(execute: Execute) -> None:
    plan = simulate("gpt2", "8xH100", global_batch=16, seq_len=256)
    document = execute(plan)
    out = io.StringIO()
    print_execution(console(out), document, [])
    shown = " ".join(out.getvalue().split())
    assert " MFU " in shown
    assert " HFU " in shown
    peak = 8 * 989.4
    assert "model FLOPs / (250 ms x " in shown
    assert f"{peak / 1000:.2f} P" in shown or f"{peak:.0f} T FLOP/s" in shown
    assert "kernels: rms_norm eager (not liger: a core, for which Triton compiles nothing)" in shown
    assert max(len(line) for line in out.getvalue().splitlines()) <= 100


def test_kernels_of_one_family_are_one_clause() -> None:
    assert kernels_text(KERNELS) == (
        "kernels: rms_norm eager (not liger: a core, for which Triton compiles nothing); "
        "swiglu liger"
    )
    assert kernels_text([]) == ""


def test_families_with_the_same_reasons_are_one_clause() -> None:
    rows = [choice(name, "eager", liger="a core") for name in ("rms_norm", "rope")]
    assert kernels_text([*rows, choice("adamw", "fused")]) == (
        "kernels: rms_norm eager, rope eager (not liger: a core); adamw fused"
    )


def test_kernels_that_differ_by_type_are_told_apart() -> None:
    rows = [
        choice("rms_norm", "liger", "bfloat16"),
        choice("rms_norm", "eager", "float64", liger="not for float64"),
    ]
    assert kernels_text(rows) == (
        "kernels: rms_norm liger for bfloat16; rms_norm eager for float64 "
        "(not liger: not for float64)"
    )


def test_kernels_and_trace_reach_the_ranks(execute: Execute, tmp_path: Path) -> None:
    plan = simulate("gpt2", "8xH100", global_batch=16, seq_len=256)
    options = execution.ExecuteOptions(kernels="portable", trace_file=tmp_path / "trace.json")
    document = execute(plan, options)
    assert document["asked"]["kernels"] == "portable"
    assert document["asked"]["trace_file"] == str(tmp_path / "trace.json")
    assert document["kernels"] == KERNELS
    assert execute(plan)["asked"]["kernels"] == "auto"


def test_other_kernels_are_refused() -> None:
    with pytest.raises(InputError, match=r"--kernels: got fused_; .*nearest: fused"):
        execution.ExecuteOptions(kernels="fused_")  # type: ignore[arg-type]


def test_the_command_takes_kernels_and_trace(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def fake(*given: Any) -> Any:
        asked.append(given[3])
        return {"measured": {}, "predicted": {}}

    monkeypatch.setattr(execution, "execute_plan", fake)
    monkeypatch.setattr(
        "shardwright.profiler.store.profiles.newest_profile", lambda ranks: object()
    )
    monkeypatch.setattr(
        "shardwright.api.problem.resolve.stored_profiles", lambda ranks: StoredProfiles()
    )
    target = tmp_path / "local.json"
    shape = ("--cluster", "local:2", "--global-batch", "4", "--seq-len", "32")
    assert plan("simulate", *shape, "--calibration", "none", "--json", str(target)).code == 0
    trace = tmp_path / "trace.json"
    more = ("--kernels", "portable", "--trace", str(trace), "--json", "-")
    assert plan("execute", str(target), *more).code == 0
    assert (asked[0].kernels, asked[0].trace_file) == ("portable", trace)
    asked.clear()
    more = (
        "--kernels", "portable", "--trace", str(trace), "--data", "text.txt", "--lr", "2e-4",
        "--checkpoint", str(tmp_path / "run"), "--every", "7",
        "--out-dir", str(tmp_path), "--steps", "3",
    )  # fmt: skip
    found = plan(
        "--execute", "--cluster", "local:2", *TYPED, "--calibration", "none", *more, "--json", "-"
    )
    assert found.code == 0, found.err
    assert plan("execute", str(target), *more, "--json", "-").code == 0
    assert asked[0] == asked[1], "plan --execute runs as plan execute does"
    assert (asked[0].data, asked[0].out_dir, asked[0].steps) == ("text.txt", tmp_path, 3)
    refused = plan("execute", str(target), "--kernels", "best")
    assert refused.code == 2
    assert refused.err.startswith("--kernels: got best; allowed: auto, portable, fused")
    refused = plan("execute", str(target), "--trace", str(tmp_path / "none" / "trace.json"))
    assert refused.code == 2
    assert refused.err.startswith("--trace: got ")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--data", "text.txt"), "--data: got text.txt without --execute; allowed: --execute"),
        (("--dry-run",), "--dry-run: got it without --execute"),
        (("--execute", "--measure-top", "2", "--checkpoint", "run"), "--checkpoint: got several"),
        (("--execute", "--measure-top", "2", "--dry-run"), "--dry-run: got several runs"),
        (("--execute", "--every", "3"), "--every: got 3; allowed: with --checkpoint"),
    ],
)
def test_flags_of_a_run_that_have_no_run(plan: Any, flags: tuple[str, ...], says: str) -> None:
    refused = plan(*flags)
    assert refused.code == 2
    assert refused.err.startswith(says)


def test_a_plan_that_was_found_is_rehearsed(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.api.execution.dry_run.dry_run_stages", lambda plan: None)
    flags = ("--execute", "--dry-run", "--cluster", "local:2", *TYPED, "--calibration", "none")
    document = plan(*flags, "--steps", "7", "--json", "-").document
    assert "execute" not in document
    assert document["dry_run"]["plan_hash"] == document["plan_hash"]
    assert document["dry_run"]["steps"] == 7
    assert "would start 2 ranks of cpu for 7 steps" in plan(*flags, "--steps", "7").out


def test_lines_stand_where_there_is_no_terminal(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(*given: Any) -> Any:
        for number, norm in ((1, 0.5), (2, None)):
            given[4]({"event": "step", "step": number, "loss": 5.25, "gradient_norm": norm,
                      "time_s": 0.125})  # fmt: skip
        return {"measured": {}, "predicted": {}}

    monkeypatch.setattr(execution, "execute_plan", fake)
    flags = ("--execute", "--cluster", "local:2", *TYPED, "--calibration", "none", "--json", "-")
    done = plan(*flags)
    assert done.err == (
        "step 1  loss 5.2500  gradient norm 0.5000  0.125 s\n"
        "step 2  loss 5.2500  overflowed, skipped  0.125 s\n"
    )
    assert done.document["execute"] == {"measured": {}, "predicted": {}}


def test_a_stopped_run_ends_with_its_signals_code(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = {"step": 7, "steps": 20, "signal": "SIGTERM", "saved": "my run"}
    one = {"step_time_s": 1.0}
    monkeypatch.setattr(
        execution,
        "execute_plan",
        lambda *given: {"measured": one, "predicted": one, "stopped": stopped},
    )
    flags = ("--execute", "--cluster", "local:2", *TYPED, "--calibration", "none")
    more = ("--verify", "--checkpoint", "my run", "--resume", "earlier", "--json", "-")
    monkeypatch.chdir(tmp_path)
    done = plan(*flags, *more)
    assert done.code == 143
    assert done.document["execute"]["stopped"] == stopped
    (line,) = done.err.splitlines()
    said, _, command = line.partition("; to go on: ")
    assert said == "stopped by SIGTERM after step 7 of 20; saved in my run"
    words = shlex.split(command)
    assert words[0] == "plan"
    assert words[-2:] == ["--resume", "my run"]
    assert words.count("--resume") == 1
    assert sorted(words[1:-2]) == sorted(
        w for w in (*flags, *more) if w not in ("--resume", "earlier")
    )
    stopped["saved"] = None
    assert plan(*flags).err.endswith("nothing was saved (--checkpoint DIR keeps runs)\n")
    several = plan(*flags, "--measure-top", "2")
    assert (several.code, several.err) == (130, "stopped before all plans were measured\n")


def test_losses_that_balance_stand_apart(execute: Execute) -> None:
    document = execute(simulate("gpt2", "8xH100", global_batch=16, seq_len=256))
    balance = {"auxiliary_loss": [4.0, 2.5], "z_loss": [0, 0.125], "fullest_over_mean": [3, 1.25]}
    document["measured"]["balance"] = balance
    out = io.StringIO()
    print_execution(console(out), document, [])
    shown = " ".join(out.getvalue().split())
    assert "fullest over mean 1.25; auxiliary loss 2.5 and z-loss 0.125, apart" in shown
