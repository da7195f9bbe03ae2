"""``plan`` as a process: speed of help, what is imported, terminals, pipes, Ctrl-C, determinism."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import shardwright
from shardwright.api.cli import output as cli_output
from shardwright.api.cli.main import cli, run
from shardwright.api.problem.resolve import Inputs, resolve

Process = Callable[..., Any]
HEAVY = {"torch", "xgboost", "sklearn", "pandas"}
SERVING = {"fastapi", "uvicorn", "dbos", "sqlalchemy", "psycopg", "prometheus_client"}
SLOW_TO_LOAD = {"numpy", "pydantic", "rich", *SERVING, *HEAVY}
SCREEN = 24
"""Lines of a terminal that nobody enlarged."""
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
SIMULATE = (
    "simulate", "--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64",
    "--seq-len", "1024",
)  # fmt: skip


def loaded_after(*arguments: str) -> set[str]:
    """Modules in a fresh interpreter after ``plan ARGUMENTS``."""
    code = (
        "import contextlib, io, json, sys\n"
        "from shardwright.api.cli.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    assert run({list(arguments)!r}) == 0\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "arguments", [("--help",), ("simulate", "--help"), ("serve", "--help"), ("--version",)]
)
def test_help_loads_nothing_slow(arguments: tuple[str, ...]) -> None:
    loaded = loaded_after(*arguments)
    assert "shardwright.api.cli.main" in loaded
    assert loaded & SLOW_TO_LOAD == set()


def test_a_plan_loads_no_training_library() -> None:
    loaded = loaded_after("--calibration", "none", "--json", "-")
    assert "shardwright.planner.search.branch_and_bound" in loaded
    assert loaded & (HEAVY | SERVING) == set()
    assert "rich.table" not in loaded_after(*SIMULATE, "--json", "-")
    loaded = loaded_after("doctor", "gpt2", "8xH100", "--json", "-")
    assert "shardwright.api.doctor.document" in loaded
    assert loaded & {"rich.table", *HEAVY} == set()


def test_version(process: Process) -> None:
    result = process("--version")
    assert (result.code, result.out) == (0, f"shardwright {shardwright.__version__}\n")


def test_help_lists_verbs_and_built_flags_only(process: Process) -> None:
    result = process("-h")
    assert result.code == 0
    for verb in ("simulate", "explain", "execute", "profile", "models", "clusters", "serve"):
        assert f"\n  {verb} " in result.out
    assert "--measure-top" in result.out
    assert "--nvme-gib" in result.out
    assert "--host-gib" in result.out
    assert "_PLAN_COMPLETE=bash_source plan" in result.out
    assert max(map(len, result.out.splitlines())) <= 100


def test_shell_completion(process: Process) -> None:
    script = process(_PLAN_COMPLETE="bash_source")
    assert "_plan_completion" in script.out
    typed = "plan --model llama-3-"
    words = {"_PLAN_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": "2"}
    offered = process(**words).out.split()
    assert offered == ["plain,llama-3-8b", "plain,llama-3-70b"]
    typed = "plan --cluster p4"
    words = {"_PLAN_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": "2"}
    assert process(**words).out.split() == ["plain,p4d.24xlarge", "plain,p4de.24xlarge"]


def _in_terminal(*arguments: str, **environment: str) -> str:
    """The output of ``plan`` on a terminal of 100 columns."""
    master, slave = pty.openpty()
    variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    variables |= {"PYTHONSAFEPATH": "1", "TERM": "xterm", "COLUMNS": "100", **environment}
    child = subprocess.Popen(
        [sys.executable, "-m", "shardwright.api.cli.main", *arguments],
        stdin=slave, stdout=slave, stderr=slave, env=variables,
    )  # fmt: skip
    os.close(slave)
    written = b""
    while chunk := _read(master):
        written += chunk
    assert child.wait(timeout=30) == 0
    os.close(master)
    return written.decode()


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""


def test_colours_on_a_terminal_only_and_not_against_no_color() -> None:
    assert COLOUR.search(_in_terminal(*SIMULATE))
    assert not COLOUR.search(_in_terminal(*SIMULATE, NO_COLOR="1"))
    assert "\x1b" not in _in_terminal(*SIMULATE, TERM="dumb")


def test_output_without_unicode(process: Process) -> None:
    result = process(*SIMULATE, PYTHONIOENCODING="ascii")
    assert result.code == 0
    assert result.out.isascii()
    assert ".........." in result.out  # an almost empty memory bar
    assert "+- 25 %" in result.out


def test_equal_requests_give_equal_bytes(tmp_path: Path) -> None:
    written = []
    for seed in range(2):
        target = tmp_path / f"{seed}.json"
        arguments = ("--model", "gpt2", "--cluster", "2xH100", "--global-batch", "32")
        command = [sys.executable, "-m", "shardwright.api.cli.main", *arguments]
        command += ["--seq-len", "512", "--out", str(target), "--json", "-"]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONSAFEPATH": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=50)
        report = json.loads(done.stdout)
        del report["search"]["seconds"]
        written.append((target.read_bytes(), json.dumps(report)))
    assert len(set(written)) == 1


def test_a_closed_pipe_is_quiet() -> None:
    command = [sys.executable, "-m", "shardwright.api.cli.main", *SIMULATE, "--json", "-"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    _, err = child.communicate(timeout=50)
    assert err == b""
    assert child.returncode in (0, 1, 141)


def test_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "shardwright.api.cli.main", "models"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=50)
    assert done.returncode == 2
    assert done.stderr.startswith(b"output: got No space left on device")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("target", ["/dev/null", "/proc/plan.json"])
def test_a_target_that_cannot_be_replaced_is_left_alone(process: Process, target: str) -> None:
    result = process(*SIMULATE, "--json", target)
    assert result.code == 2
    assert target in result.err
    assert result.err.count("\n") == 1
    assert Path("/dev/null").is_char_device()


def test_a_fault_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, plan: Process) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr("shardwright.api.catalogue.models.models_document", broken)
    result = plan("models")
    assert result.code == 1
    assert result.err.startswith("internal error: KeyError: 'x' (test_process.py:")
    assert "SHARDWRIGHT_DEBUG=1" in result.err
    assert result.err.count("\n") == 1
    monkeypatch.setenv("SHARDWRIGHT_DEBUG", "1")
    assert "Traceback" in plan("models").err


def _interrupt_when(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Press Ctrl-C as soon as the progress line says ``word``."""

    def progress(self: Any, done: int, total: int | None, state: str) -> None:
        if word in state:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_output.ProgressLine, "__call__", progress)


def test_ctrl_c_gives_the_best_plan_so_far(monkeypatch: pytest.MonkeyPatch, plan: Process) -> None:
    _interrupt_when(monkeypatch, "best ")
    arguments = ("--model", "llama-2-7b", "--cluster", "16xH100", "--global-batch", "64")
    result = plan(*arguments, "--seq-len", "4096", "--json", "-")
    assert result.code == 0
    assert result.err == ""
    search = result.document["search"]
    assert search["stopped_by"] == "deadline"
    assert search["gap"] >= 0


def test_ctrl_c_before_any_plan_is_one_line(monkeypatch: pytest.MonkeyPatch, plan: Process) -> None:
    _interrupt_when(monkeypatch, "nothing fits yet")
    arguments = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "8")
    result = plan(*arguments, "--seq-len", "64")
    assert result.code == 130
    assert result.out == ""
    assert result.err == "interrupted before there was a result\n"


def test_ctrl_c_at_a_terminal(tmp_path: Path) -> None:
    """A real signal, sent when the bar on the terminal shows a best plan."""
    master, slave = pty.openpty()
    target = tmp_path / "report.json"
    arguments = ("--model", "llama-3-70b", "--cluster", "64xH100", "--global-batch", "512")
    child = subprocess.Popen(
        [sys.executable, "-m", "shardwright.api.cli.main", *arguments, "--seq-len", "8192",
         "--json", str(target)],
        stdout=subprocess.DEVNULL, stderr=slave, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(slave)
    seen, ends_s = b"", time.monotonic() + 40
    while b"best " not in seen and time.monotonic() < ends_s:
        if select.select([master], [], [], 0.5)[0]:
            seen += _read(master)
        if child.poll() is not None:
            break
    child.send_signal(signal.SIGINT)
    while chunk := _read(master):
        seen += chunk
    assert child.wait(timeout=30) == 0, seen
    os.close(master)
    assert b"Traceback" not in seen
    assert json.loads(target.read_text())["search"]["stopped_by"] in ("deadline", "work", "proof")


def test_run_never_raises(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert run(["nonsense"]) == 2
    assert capfd.readouterr().err.count("\n") == 1


@pytest.fixture(scope="module")
def help_text() -> str:
    """The help of ``plan``."""
    return CliRunner().invoke(cli, ["--help"], prog_name="plan").output


def test_the_first_screen_names_every_verb(help_text: str) -> None:
    screen = "\n".join(help_text.splitlines()[:SCREEN])
    for verb in ("models", "clusters", "doctor", "simulate", "what-if", "execute", "serve"):
        assert re.search(rf"^  {verb} ", screen, re.MULTILINE), verb
    places = [help_text.index(word) for word in ("Commands:", "Options:", "Examples:")]
    assert places == sorted(places)


def _examples(text: str) -> list[list[str]]:
    whole = re.sub(r" *\\\n *", " ", text.partition("Examples:")[2])
    lines = [re.sub(r"  +.*", "", line.strip()) for line in whole.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("plan --model")]


def test_its_examples_are_questions_that_can_be_asked(help_text: str) -> None:
    examples = _examples(help_text)
    assert len(examples) == 3
    problems = []
    for words in examples:
        flags = dict(zip(words[::2], words[1::2], strict=True))
        names = {flag.removeprefix("--").replace("-", "_"): value for flag, value in flags.items()}
        numbers = {key: int(names.pop(key)) for key in ("global_batch", "seq_len")}
        problems.append(resolve(Inputs(**names, **numbers)))
    _, adapters, pure = problems
    assert adapters.workload.adapters is not None
    assert len(adapters.workload.adapters.targets) == 7
    dtype = pure.workload.dtype
    assert {dtype.param, dtype.gradient, dtype.master, dtype.moments} == {"bf16"}
    (why,) = [note.why for note in pure.assumptions if note.path == "workload.dtype"]
    assert why == "not given; bf16 with states as given"
