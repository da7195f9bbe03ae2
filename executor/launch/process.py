"""One worker process of a pool: started, watched, ended; loads no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from .activity import Activity
from .channel import Receiver, Sender

WORKER_MODULE = "shardwright.executor.worker"
SEND_TIMEOUT_S = 10.0
TAIL_BYTES = 4096
SEARCHED_BYTES = 1 << 18
TAIL_LINES = 3


class WorkerProcess:
    """A started worker, its control channel and its two output files.

    Args:
        arguments: command line of the worker module without the channel's.
    """

    def __init__(
        self, rank: int, arguments: list[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.rank = rank
        self.output = folder / f"rank{rank}.out"
        self.errors = folder / f"rank{rank}.err"
        child_reads, parent_writes = os.pipe()
        parent_reads, child_writes = os.pipe()
        command = [sys.executable, "-P", "-m", WORKER_MODULE, *arguments]
        command += ["--channel", str(child_reads), str(child_writes)]
        if threading.current_thread() is threading.main_thread():
            # The kernel ends the worker with the thread that started it, so only with this one.
            command += ["--die-with-parent", str(os.getpid())]
        try:
            with self.output.open("wb") as output, self.errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env=dict(environment),
                    pass_fds=(child_reads, child_writes),
                    start_new_session=True,  # a Ctrl-C at the terminal is the launcher's to handle
                )
        finally:
            os.close(child_reads)
            os.close(child_writes)
        self._activity = Activity(self._process.pid)
        self.sender = Sender(parent_writes, SEND_TIMEOUT_S)
        self.receiver = Receiver(parent_reads)

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    def ending(self) -> str | None:
        """End of the process in words; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds; return True if the process ended."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def busy_s(self) -> float:
        """Busy seconds, as of :class:`Activity`; 0 if unknown."""
        return self._activity.busy_s()

    def is_stopped(self) -> bool:
        """True if the process is stopped (SIGSTOP, debugger); False if unknown."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] in ("T", "t")

    def kill(self) -> None:
        """Kill the process and its children at once."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it just ended
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Close this side's ends of the channel."""
        self.sender.close()
        self.receiver.close()

    def error_tail(self) -> str:
        """Last lines of its error output, joined."""
        return " | ".join(self._last_lines(TAIL_BYTES)[-TAIL_LINES:])

    def error_line(self, words: str) -> str:
        """First line with ``words`` near the error output's end, else ""."""
        return next((line for line in self._last_lines(SEARCHED_BYTES) if words in line), "")

    def _last_lines(self, size_bytes: int) -> list[str]:
        try:
            with self.errors.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - size_bytes))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def rank_environment(rank: int, ranks: int) -> dict[str, str]:
    """A local rank's environment: torchrun's variables, one thread, loopback only."""
    environment = dict(os.environ)
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    environment.update({name: str(number) for name, number in numbers.items()})
    environment["PYTHONSAFEPATH"] = "1"
    environment["OMP_NUM_THREADS"] = "1"  # a device of a local plan is one core
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:
        name = loopback.pop()
        environment.setdefault("GLOO_SOCKET_IFNAME", name)
        environment.setdefault("NCCL_SOCKET_IFNAME", name)
    return environment
