"""Commands measured from outside: seconds, user seconds, memory of the tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.paths import ROOT

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A finished command; ``user_s`` includes children, ``peak_bytes`` is 0 unless followed."""

    wall_s: float
    user_s: float
    peak_bytes: int
    code: int
    out: bytes
    err: str


def plan_command() -> list[str]:
    """The ``plan`` command of this environment, or its module."""
    script = Path(sys.executable).with_name("plan")
    return [str(script)] if script.exists() else [sys.executable, "-m", "shardwright.api.cli.main"]


def question_words(model: str, cluster: str, batch: int, seq_len: int) -> tuple[str, ...]:
    """The words of a question to ``plan``, answered on standard output."""
    words = ("--model", model, "--cluster", cluster, "--global-batch", str(batch))
    return (*words, "--seq-len", str(seq_len), "--json", "-")


def ran(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    follow: bool = False,
    cwd: Path = ROOT,
) -> Ran:
    """Run a command to its end.

    Args:
        command: program and arguments.
        environment: added to this process's own.
        follow: sample the memory of the process and all its descendants, 100 times a second.
        cwd: where it runs.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start_s = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
        )
        tree = _Tree(process.pid) if follow else None
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
        # The kernel's own high-water mark sees what falls between two samples.
        peak = max(tree.stop(), usage.ru_maxrss * 1024) if tree else 0
        out.seek(0)
        err.seek(0)
        return Ran(
            wall_s=wall_s,
            user_s=usage.ru_utime,
            peak_bytes=peak,
            code=process.returncode,
            out=out.read(),
            err=err.read().decode(errors="replace"),
        )


def succeeded(command: Sequence[str], environment: Mapping[str, str] | None = None,
              follow: bool = False) -> Ran:  # fmt: skip
    """:func:`ran`, and an error where the command failed.

    Raises:
        RuntimeError: it did not exit with 0; the end of what it said is in the message.
    """
    done = ran(command, environment, follow)
    if done.code:
        last_line = done.err.strip().splitlines()[-1:] or ["nothing said"]
        raise RuntimeError(f"{' '.join(command)} exited with {done.code}: {last_line[0]}")
    return done


class _Tree:
    """Samples resident bytes, summed over a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The largest sum seen."""
        self._stop.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._peak = max(self._peak, resident_tree_bytes(self._pid))


def resident_tree_bytes(pid: int) -> int:
    """Resident bytes now, summed over a process and its descendants."""
    return sum(map(_resident_bytes, _descendants(pid)))


def children_peak_bytes(pid: int) -> int:
    """Resident bytes now of the largest process below ``pid``."""
    return max(map(_resident_bytes, _descendants(pid)[1:]), default=0)


def _descendants(pid: int) -> list[int]:
    tree, waiting = [], [pid]
    while waiting:
        tree.append(waiting.pop())
        for task in Path(f"/proc/{tree[-1]}/task").glob("*/children"):
            with suppress(OSError):
                waiting += [int(child) for child in task.read_text(encoding="ascii").split()]
    return tree


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0
