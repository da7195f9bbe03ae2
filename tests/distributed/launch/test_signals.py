"""Ctrl-C, SIGTERM and Ctrl-Z in the middle of a run: real processes, real signals."""

from __future__ import annotations

import csv
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from generators.plan_cases import Case, Sizes
from generators.random_spaces import random_profile

from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.executor.checkpoint.storage.folders import step_folders, step_of
from shardwright.profiler.store import profiles
from shardwright.spec.codec import canonical_json

TEXT = Sizes(vocab=320, hidden=64, ffn=160)
PLAN = Case(name="signals", sizes=TEXT, ranks=2, stages=2, micro_batch=2, seq_len=32).plan()
FOREVER = "1000000"
LIMIT_S = 90.0
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan, a text, and a profile of this machine, so that nothing is measured first."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    profile = random_profile(random.Random(0), parse_cluster("local:2").cluster)
    assert profile is not None
    profiles.save_profile(replace(profile, ranks=2, fingerprint=profiles.fingerprint()))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "plan.json").write_text(canonical_json(PLAN))
    (tmp_path / "text.txt").write_text("a text of no great length, again and again\n" * 2000)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Any:
    """Starts ``python ARGUMENTS`` in the folder; whatever still runs at the end is killed."""
    begun: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONSAFEPATH": "1", "TMPDIR": str(folder / "temporary")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # as a shell with job control does
        )
        begun.append(process)
        return process

    yield run
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "losses.csv").open(newline="") as file:
        return list(csv.DictReader(file))


EXECUTE = ("-m", "shardwright.api.cli.main", "execute", "plan.json", "--data", "text.txt")


def saved_step(folder: Path, above: int = 0) -> int:
    """The newest step that is saved, once it is above a given one."""
    ends_s = time.monotonic() + LIMIT_S
    while time.monotonic() < ends_s:
        folders = step_folders(folder)
        if folders and (step := step_of(folders[0]) or 0) > above:
            return step
        time.sleep(0.05)
    raise AssertionError("nothing was saved")


def test_a_stopped_run_is_saved_and_says_how_to_go_on(start: Start, folder: Path) -> None:
    more = ("--steps", FOREVER, "--checkpoint", "run", "--every", "5", "--json", "out.json")
    process = start(*EXECUTE, *more)
    saved_step(folder / "run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "stopping after this step" in err
    document = json.loads((folder / "out.json").read_text())
    step = document["stopped"]["step"]
    assert len(document["measured"]["losses"]) == step
    assert "comparison" not in document
    assert step_of(step_folders(folder / "run")[0]) == step
    assert f"stopped by SIGINT after step {step} of {FOREVER}; saved in " in out
    (line,) = [line for line in err.splitlines() if line.startswith("stopped by")]
    words = shlex.split(line.partition("to go on: ")[2])
    assert words[:3] == ["plan", "execute", "plan.json"]
    assert Path(words[-1]) == folder / "run"

    again = start("-m", "shardwright.api.cli.main", *words[1:])
    saved_step(folder / "run", above=step)
    again.send_signal(signal.SIGTERM)
    _, err = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 128 + signal.SIGTERM, err
    assert f"going on after step {step} from " in err
    document = json.loads((folder / "out.json").read_text())
    assert document["stopped"]["signal"] == "SIGTERM"
    losses = document["measured"]["losses"]
    assert document["stopped"]["step"] == step + len(losses)
    assert document["losses_file"] == str(folder / "run" / "losses.csv")
    kept = rows(folder / "run")
    assert [int(row["step"]) for row in kept] == list(range(1, step + len(losses) + 1))
    assert [float(row["loss"]) for row in kept[step:]] == losses


def test_without_a_checkpoint_nothing_is_saved_and_that_is_said(start: Start, folder: Path) -> None:
    process = start(*EXECUTE, "--steps", FOREVER, "--out-dir", "kept")
    assert process.stderr is not None
    for number in (1, 2, 3):  # a line a step, at once
        assert process.stderr.readline().startswith(f"step {number}  loss ")
    process.send_signal(signal.SIGQUIT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + signal.SIGQUIT, err
    assert "; nothing was saved (--checkpoint DIR keeps runs)" in err
    assert "predicted against measured" in out
    steps = [int(row["step"]) for row in rows(folder / "kept")]
    assert steps == list(range(1, len(steps) + 1))
    assert f"after step {steps[-1]} of" in err
    assert not list((folder / "temporary").glob("shardwright-*"))


def test_ranks_under_torchrun_stop_together(start: Start, folder: Path) -> None:
    worker = ("-m", "shardwright.executor.worker", "plan.json", "--data", "text.txt")
    process = start(
        "-m", "torch.distributed.run", "--nproc-per-node", "2", *worker,
        "--steps", FOREVER, "--checkpoint", "run", "--every", "5", "--json", "out.json",
    )  # fmt: skip
    saved_step(folder / "run")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT_S)
    step = json.loads((folder / "out.json").read_text())["stopped"]["step"]
    assert step_of(step_folders(folder / "run")[0]) == step
    assert f"stopped by SIGTERM after step {step} of {FOREVER}; saved in run" in err
    assert "the same command with --resume run" in err
    assert [int(row["step"]) for row in rows(folder / "run")] == list(range(1, step + 1))


STEPS, STEP_S = 60, 0.05
RUN = f"""
import json, sys
from pathlib import Path
from shardwright.executor.launch.pool import PoolOptions, run_plan
from shardwright.spec.plan.plan import load_plan

def show(rank, event):
    print(event.get("step", event.get("text")), flush=True)

slow = {{"rank": 1, "step": 1, "how": "slow", "seconds": {STEP_S}}}
payload = {{"steps": {STEPS}, "random_tokens": True, "follow_bytes": False, "faults": [slow]}}
options = PoolOptions(
    collective_timeout_s=5.0, silent_after_s=5.0, stalled_after_s=5.0, missing_after_s=60.0
)
result = run_plan(load_plan(Path("plan.json").read_text(), "plan"), payload, show, options)
print(len(result["measured"]["losses"]), "losses")
"""
AWAY_S = 7.0
"""Longer than every limit above."""


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP], ids=["ctrl-z", "stop"])
def test_a_suspended_run_goes_on(start: Start, number: signal.Signals) -> None:
    process = start("-c", RUN)
    assert process.stdout is not None
    while (line := process.stdout.readline()).strip() != "5":
        assert line, process.communicate()[1]
    process.send_signal(number)
    pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert pid == process.pid
    assert os.WIFSTOPPED(status)
    ranks = children(process.pid)
    assert len(ranks) == 2
    time.sleep(1.0)
    before = [cpu_ticks(rank) for rank in ranks]
    time.sleep(AWAY_S)
    if number == signal.SIGTSTP:
        spent_s = max(
            (cpu_ticks(rank) - ticks) / os.sysconf("SC_CLK_TCK")
            for rank, ticks in zip(ranks, before, strict=True)
        )
        assert spent_s < 0.1 * AWAY_S, "the ranks wait between two steps"
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == f"{STEPS} losses"
    assert [line for line in out.splitlines() if line.isdecimal()][-1] == str(STEPS)
