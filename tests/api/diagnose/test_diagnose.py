"""``plan diagnose``: logs read, a waterfall that adds up, changes in the framework's words.

The logs in ``samples`` are of our making, in the lines that each framework prints (their sources
are in the readers' docstrings).
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.diagnose.diagnosis import diagnosed
from shardwright.api.diagnose.kineto_trace import read_trace
from shardwright.api.diagnose.logs.read_log import read_log
from shardwright.api.diagnose.measured_run import RunQuestion, measured_run
from shardwright.api.diagnose.step_noise import TimedStep, step_noise
from shardwright.api.frameworks.import_plan import import_plan
from shardwright.api.html.waterfall_svg import LEFT, shown_bars, waterfall_svg
from shardwright.api.planning.report import simulate_plan
from shardwright.api.problem.resolve import Inputs
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError

Plan = Callable[..., Any]
SAMPLES = Path(__file__).parent / "samples"
RUNS: dict[str, dict[str, Any]] = {
    "megatron": {"cluster": "8x8xH100-80GB"},
    "torchtitan": {"cluster": "8xH100-80GB"},
    "deepspeed": {"cluster": "8xH100-80GB", "model": "llama-3-8b", "seq_len": 4096},
    "trainer": {"cluster": "8xH100-80GB", "model": "llama-3-8b", "seq_len": 4096},
}
SECONDS = {"megatron": 104.4, "torchtitan": 8192 / 5740.5, "deepspeed": 64 / 9.05, "trainer": 7.9}
"""Median seconds of a step, by what each sample's lines say."""


@cache
def found_of(kind: str) -> Any:
    """The diagnosis of a sample, made once."""
    return diagnosed(run_of(kind))


def run_of(kind: str) -> Any:
    path = str(SAMPLES / f"{kind}.log")
    return measured_run(RunQuestion(path=path, given=Inputs(**RUNS[kind])))


@pytest.mark.parametrize("kind", RUNS)
def test_a_log_says_its_steps_and_its_configuration(kind: str) -> None:
    run = run_of(kind)
    assert run.log_kind == kind
    assert run.noise.p50_s == pytest.approx(SECONDS[kind], rel=0.01)
    assert run.measured_s == run.noise.mean_s
    assert run.plan.cluster.device_count == (64 if kind == "megatron" else 8)


def test_what_the_logs_print_is_in_the_plans() -> None:
    runs = {kind: run_of(kind) for kind in RUNS}
    strategies = {kind: run.plan.layer_strategies()[1] for kind, run in runs.items()}
    assert (strategies["megatron"].tp, len(runs["megatron"].plan.program.stages)) == (8, 4)
    assert runs["megatron"].plan.model.name == "llama-3-70b"
    assert strategies["torchtitan"].shard.parameters == 8
    assert runs["deepspeed"].plan.program.schedule.micro_batch == 2
    assert strategies["trainer"].recompute == "full"
    assert runs["trainer"].plan.workload.global_batch == 64
    assert runs["megatron"].peak_bytes == 36406 * 2**20
    assert runs["deepspeed"].peak_of == "allocated"


@pytest.mark.parametrize("kind", RUNS)
def test_bars_add_up_to_the_step_and_to_one(kind: str) -> None:
    run = run_of(kind)
    found = found_of(kind)
    bars = found.waterfall.bars
    assert math.fsum(bar.seconds for bar in bars) == run.measured_s
    assert math.fsum(bar.share for bar in bars) == pytest.approx(1, abs=1e-12)
    prediction = found.report.prediction
    at_peak_s = (prediction.mfu_causal or 0) * prediction.step_time_s
    assert found.waterfall.mfu == pytest.approx(at_peak_s / run.measured_s)
    seconds = found.waterfall.seconds
    beyond = run.measured_s - prediction.step_time_s - run.noise.slow_s
    assert seconds["unexplained"] == pytest.approx(beyond)


def test_the_picture_ends_at_the_measured_step() -> None:
    found = found_of("torchtitan")
    drawing = waterfall_svg(found.to_document())
    pairs = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', drawing)
    *bars, whole = [(float(x), float(x) + float(width)) for x, width in pairs]
    assert len(bars) == len(shown_bars(found.to_document()["waterfall"]["bars"]))
    end = LEFT + sum((right - left) * (1 if n in _longer(found) else -1)
                     for n, (left, right) in enumerate(bars))  # fmt: skip
    assert end == pytest.approx(whole[1], abs=len(bars))
    assert drawing in found._repr_html_()


def _longer(found: Any) -> set[int]:
    bars = shown_bars(found.to_document()["waterfall"]["bars"])
    return {n for n, bar in enumerate(bars) if bar["seconds"] > 0}


@pytest.mark.parametrize("kind", ["megatron", "torchtitan"])
def test_changes_are_priced_as_what_they_write(kind: str, tmp_path: Path) -> None:
    found = found_of(kind)
    changes = [*found.changes.alone, found.changes.together]
    assert len(changes) > 2
    gains = [item.gain for item in found.changes.alone]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0
    before = found.report.prediction.step_time_s
    for item in changes:
        assert item is not None
        again = simulate_plan(item.plan, _stack(item.stack, found), None, ()).report.prediction
        assert again.feasible
        assert before / again.step_time_s - 1 == pytest.approx(item.gain, rel=1e-9)
        assert item.step_s == pytest.approx(found.run.measured_s / (1 + item.gain))
        assert item.flags, item.axes
        assert not item.plan.check()
    together = found.changes.together
    assert together is not None
    assert together.gain > gains[0]


def _stack(name: str, found: Any) -> Any:
    return replace(stack(name), attention=found.run.stack.attention)


def test_flags_are_those_of_the_files(tmp_path: Path) -> None:
    found = found_of("megatron")
    recompute = next(c for c in found.changes.alone if c.axes[0].axis == "recompute")
    assert any(flag.key == "--recompute-granularity" for flag in recompute.flags)
    assert not recompute.conversion
    width = next(c for c in found.changes.alone if c.axes[0].axis == "tp")
    assert "torch_dist" in width.conversion


def test_slow_steps_are_found_and_paid_for() -> None:
    lines = [TimedStep(n, 2.0 if n == 7 else 1.0 + 0.001 * n, 1) for n in range(1, 101)]
    noise = step_noise(lines)
    assert noise.left_out == 2
    assert [item.step for item in noise.slow] == [7]
    assert noise.p50_s == pytest.approx(1.052)
    assert noise.p99_s == 2.0
    assert noise.slow_s == pytest.approx(noise.mean_s - noise.p50_s)


def test_little_explained_is_said_with_what_to_measure() -> None:
    run = run_of("torchtitan")
    slow = diagnosed(replace(run, measured_s=5 * run.measured_s, noise=None))
    assert not slow.explains
    assert any("torch.profiler" in line for line in slow.measure_next)
    assert found_of("torchtitan").explains


def test_a_step_faster_than_the_peak_is_refused() -> None:
    run = run_of("torchtitan")
    with pytest.raises(InputError, match="devices' peak"):
        diagnosed(replace(run, measured_s=1e-3, noise=None))


def _trace(path: Path) -> None:
    events: list[dict[str, Any]] = []
    for step in range(2):
        start = step * 1e6
        name = f"ProfilerStep#{step}"
        events.append({"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": 1e6})
        kernels = (("sm90_xmma_gemm", 0, 4e5), ("ncclDevKernel_AllGather", 3e5, 3e5),
                   ("flash_fwd_kernel", 6e5, 1e5), ("elementwise_kernel", 7e5, 1e5))  # fmt: skip
        for kernel, offset, length in kernels:
            at = start + offset
            events.append({"ph": "X", "cat": "kernel", "name": kernel, "ts": at, "dur": length})
    with gzip.open(path, "wt") as stream:
        json.dump({"traceEvents": events}, stream)


def test_a_trace_is_split_into_three_parts(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    _trace(path)
    found = read_trace(str(path))
    assert found.steps == 2
    assert found.step_s == pytest.approx(1)
    assert found.computation_s == pytest.approx(0.6)
    assert found.communication_s == pytest.approx(0.2)
    assert found.idle_s == pytest.approx(0.2)
    assert (found.matmul_s, found.attention_s) == (pytest.approx(0.4), pytest.approx(0.1))


def test_the_command_says_what_python_says(plan: Plan, tmp_path: Path) -> None:
    path = str(SAMPLES / "torchtitan.log")
    trace = tmp_path / "rank0.json.gz"
    _trace(trace)
    flags = ("diagnose", path, "--cluster", "8xH100-80GB", "--trace", str(trace))
    document = plan(*flags, "--json", "-").document
    made = sw.diagnose(path, "8xH100-80GB", trace=trace).to_document()
    assert document == json.loads(json.dumps(made))
    shown = plan(*flags).out
    assert max(map(len, shown.splitlines())) <= 100
    assert len(shown.splitlines()) <= 45
    assert "unexplained" in shown
    assert "communication and waiting" in shown


def test_a_configuration_with_a_figure_is_diagnosed(plan: Plan, tmp_path: Path) -> None:
    config = tmp_path / "train.toml"
    config.write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n'
                      'seq_len = 8192\n[activation_checkpoint]\nmode = "full"\n')  # fmt: skip
    flags = (str(config), "--cluster", "8xH100-80GB")
    by_step = plan("diagnose", *flags, "--measured-step", "1.6", "--json", "-").document
    by_rate = plan("diagnose", *flags, "--tokens-per-s", str(65536 / 1.6), "--json", "-").document
    assert by_step["waterfall"]["mfu"] == pytest.approx(by_rate["waterfall"]["mfu"])
    given = Inputs(cluster="8xH100-80GB")
    assert by_step["plan_hash"] == import_plan(str(config), None, given).plan.hash
    plan_file = tmp_path / "plan.json"
    assert plan("import", *flags, "--out", str(plan_file)).code == 0
    again = plan("diagnose", str(plan_file), "--measured-step", "1.6", "--json", "-").document
    assert again["plan_hash"] == by_step["plan_hash"]
    assert again["prediction"]["step_time_s"] == by_step["prediction"]["step_time_s"]


def test_a_log_without_its_configuration_takes_one_beside_it(plan: Plan, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = (SAMPLES / "torchtitan.log").read_text().splitlines()
    log.write_text("\n".join(line for line in lines if "step:" in line))
    config = tmp_path / "train.toml"
    config.write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n'
                      'seq_len = 8192\n[activation_checkpoint]\nmode = "full"\n')  # fmt: skip
    found = plan("diagnose", str(log), "--cluster", "8xH100-80GB")
    assert (found.code, "--config" in found.err) == (2, True)
    flags = ("--config", str(config), "--cluster", "8xH100-80GB", "--json", "-")
    assert plan("diagnose", str(log), *flags).document["log"] == "torchtitan"


BAD = {
    "no log": ((), "a training log"),
    "no steps": (("empty.log", "--cluster", "8xH100"), "no step times"),
    "no figure": (("ds.json", "--cluster", "8xH100", "--model", "gpt2", "--seq-len", "1024"),
                  "--measured-step"),
    "other devices": ((str(SAMPLES / "megatron.log"), "--cluster", "8xH100"), "64 devices"),
    "two figures": ((str(SAMPLES / "megatron.log"), "--cluster", "8x8xH100", "--measured-step",
                     "1", "--tokens-per-s", "5"), "nothing beside --measured-step"),
    "no trace": ((str(SAMPLES / "torchtitan.log"), "--cluster", "8xH100", "--trace", "ds.json"),
                 "torch.profiler"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(
    case: str, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.log").write_text("nothing to see\n")
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')
    arguments, says = BAD[case]
    found = plan("diagnose", *arguments)
    assert found.code == 2
    assert says in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_batches_of_a_ramp_are_not_mixed(tmp_path: Path) -> None:
    log = tmp_path / "ramp.log"
    lines = [
        f"iteration {n:8d}/ 9 | elapsed time per iteration (ms): {ms} | global batch size: {b:5d} |"
        for n, ms, b in ((1, 900, 32), (2, 500, 32), (3, 990, 64), (4, 1000, 64))
    ]
    log.write_text("\n".join(lines))
    assert [step.step for step in read_log(str(log)).steps] == [3, 4]
