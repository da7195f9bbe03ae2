"""Ranks in network namespaces that a bridge joins, each with a link held to a rate.

A namespace stands for a node: what its ranks send and receive passes a token bucket of the kernel
(tc-tbf) each way. Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

SUBNET = "10.213.78"
PORT = 29500
"""Of the ranks' store; every network is new, so it is free."""
BURST_BYTES = 1 << 16
QUEUE_S = 0.1
"""Longest wait in a bucket's queue before packets are dropped."""
POLL_S = 0.1


def lacking() -> str | None:
    """Reason why this machine cannot hold links; None if it can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "no iproute2 here, so no network namespaces"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with HeldLinks(1, 1e6):
            return None
    except RuntimeError as error:
        return f"no network namespaces here: {error}"


class HeldLinks:
    """``nodes`` namespaces on one bridge, for as long as the context lasts.

    Args:
        bytes_per_s: rate of each node's link, each way, headers included.
    """

    def __init__(self, nodes: int, bytes_per_s: float) -> None:
        tag = uuid.uuid4().hex[:6]
        self._bridge = f"sw{tag}b"
        self._names = [f"sw{tag}n{number}" for number in range(nodes)]
        self._outer = [f"sw{tag}o{number}" for number in range(nodes)]
        self._inner = [f"sw{tag}i{number}" for number in range(nodes)]
        self._bytes_per_s = bytes_per_s

    def __enter__(self) -> HeldLinks:
        try:
            _call("ip", "link", "add", self._bridge, "type", "bridge")
            _call("ip", "link", "set", self._bridge, "up")
            for number in range(len(self._names)):
                self._add(number)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _add(self, number: int) -> None:
        name, outer, inner = self._names[number], self._outer[number], self._inner[number]
        _call("ip", "netns", "add", name)
        _call("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        _call("ip", "link", "set", outer, "master", self._bridge, "up")
        _call("ip", "-n", name, "address", "add", f"{address(number)}/24", "dev", inner)
        for device in (inner, "lo"):
            _call("ip", "-n", name, "link", "set", device, "up")
        bucket = ["root", "tbf", "rate", f"{round(8 * self._bytes_per_s)}bit"]
        bucket += ["burst", str(BURST_BYTES), "latency", f"{QUEUE_S * 1e3:g}ms"]
        _call("tc", "qdisc", "add", "dev", outer, *bucket)
        _call("tc", "-n", name, "qdisc", "add", "dev", inner, *bucket)

    def _remove(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was not made
            for name in self._names:  # a cable goes with an end
                _call("ip", "netns", "delete", name)
        with contextlib.suppress(RuntimeError):
            _call("ip", "link", "delete", self._bridge)

    def run(self, command: Sequence[str], folder: Path, timeout_s: float) -> None:
        """Run Python with these arguments as one rank in every namespace, as torchrun would.

        What rank N prints lies in ``folder``, as ``rankN.txt``.

        Raises:
            RuntimeError: a rank failed or took too long; all are ended.
        """
        ranks = [self._start(number, command, folder) for number in range(len(self._names))]
        end_s = time.monotonic() + timeout_s
        try:
            while any(rank.poll() is None for rank in ranks) and time.monotonic() < end_s:
                if any(rank.poll() for rank in ranks):  # its peers would wait for it
                    break
                time.sleep(POLL_S)
        finally:
            codes = [rank.poll() for rank in ranks]
            for rank in ranks:
                rank.kill()
                rank.wait()
        if any(codes) or None in codes:
            printed = [(folder / f"rank{n}.txt").read_text()[-600:] for n in range(len(codes))]
            raise RuntimeError(f"ranks ended with {codes}: " + "\n".join(printed))

    def _start(self, rank: int, command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
        numbers = {"RANK": rank, "WORLD_SIZE": len(self._names), "MASTER_PORT": PORT}
        numbers |= {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "OMP_NUM_THREADS": 1}
        environment = {**os.environ, **{name: str(number) for name, number in numbers.items()}}
        environment |= {"MASTER_ADDR": address(0), "GLOO_SOCKET_IFNAME": self._inner[rank]}
        environment |= {"PYTHONSAFEPATH": "1"}
        environment |= {"RES_OPTIONS": "timeout:1 attempts:1"}  # no name server answers in there
        inside = ["ip", "netns", "exec", self._names[rank], sys.executable, *command]
        with (folder / f"rank{rank}.txt").open("w") as printed:
            return subprocess.Popen(inside, env=environment, stdout=printed, stderr=printed)


def address(number: int) -> str:
    """Address of a node."""
    return f"{SUBNET}.{number + 1}"


def _call(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
