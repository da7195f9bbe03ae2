"""Ranks in network namespaces, their links held to the rates of a cluster.

A namespace stands for a device, a bridge for what a link level joins. A device, or a whole bridge
of the level below, is joined by one cable, held each way by a token bucket of the kernel (tc-tbf)
to the rate of as many devices as share it: as rings that run side by side, or equal groups at
once, would have it. Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.paths import BENCHMARKS

from shardwright.spec.cluster.cluster_spec import ClusterSpec, LinkLevel

SUBNET = "10.213.78"
PORT = 29500
"""Of the ranks' store; every network is new, so it is free."""
BURST_BYTES = 1 << 16
QUEUE_S = 0.1
"""Longest wait in a bucket's queue before packets are dropped."""
POLL_S = 0.1
DEVICE = "eth0"
"""A device's end of its cable."""
ALONE = LinkLevel(level="intra_node", group_size=1, fabric="loopback", bandwidth_bytes_per_s=1e6)
"""What one device's namespace needs of a machine."""


def lacking() -> str | None:
    """Reason why this machine cannot hold links; None if it can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "no iproute2 here, so no network namespaces"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with HeldLinks([ALONE]):
            return None
    except RuntimeError as error:
        return f"no network namespaces here: {error}"


def held_levels(cluster: ClusterSpec) -> list[LinkLevel]:
    """A cluster's levels of several devices, innermost first.

    Raises:
        ValueError: one has no typed rate.
    """
    levels = [level for level in cluster.levels if level.group_size > 1]
    for level in levels:
        if level.bandwidth_bytes_per_s is None or level.oversubscription > 1:
            raise ValueError(f"a held level needs a typed rate without oversubscription: {level}")
    return levels


class HeldLinks:
    """A namespace for each device, for as long as the context lasts.

    Args:
        levels: that hold them, innermost first; rates are of bytes with headers, each way.
    """

    def __init__(self, levels: Sequence[LinkLevel]) -> None:
        self._tag, self._levels = f"sw{uuid.uuid4().hex[:6]}", levels
        self._count = levels[-1].group_size

    def __enter__(self) -> HeldLinks:
        try:
            for bridge in self._bridges():
                _call("ip", "link", "add", bridge, "type", "bridge")
                _call("ip", "link", "set", bridge, "up")
            for number in range(self._count):
                self._add_device(number)
            for depth in range(1, len(self._levels)):
                self._join_bridges(depth)
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

    def _name(self, number: int) -> str:
        return f"{self._tag}n{number}"

    def _bridge(self, depth: int, device: int) -> str:
        """The bridge of a level that a device is on."""
        return f"{self._tag}b{depth}_{device // self._levels[depth].group_size}"

    def _bridges(self) -> list[str]:
        depths = range(len(self._levels))
        return sorted({self._bridge(d, number) for d in depths for number in range(self._count)})

    def _add_device(self, number: int) -> None:
        name, outer = self._name(number), f"{self._tag}o{number}"
        inside = ("ip", "-n", name)
        _call("ip", "netns", "add", name)
        _call("ip", "link", "add", outer, "type", "veth", "peer", "name", DEVICE, "netns", name)
        _call("ip", "link", "set", outer, "master", self._bridge(0, number), "up")
        _call(*inside, "address", "add", f"{address(number)}/24", "dev", DEVICE)
        for device in (DEVICE, "lo"):
            _call(*inside, "link", "set", device, "up")
        self._hold(("tc",), outer, 0)
        self._hold(("tc", "-n", name), DEVICE, 0)

    def _join_bridges(self, depth: int) -> None:
        """Join the bridges of the level below by those of a level."""
        for device in range(0, self._count, self._levels[depth - 1].group_size):
            lower, upper = f"{self._tag}l{depth}_{device}", f"{self._tag}u{depth}_{device}"
            _call("ip", "link", "add", lower, "type", "veth", "peer", "name", upper)
            for end, on in ((lower, depth - 1), (upper, depth)):
                _call("ip", "link", "set", end, "master", self._bridge(on, device), "up")
                self._hold(("tc",), end, depth)

    def _hold(self, tc: tuple[str, ...], device: str, depth: int) -> None:
        sharing = self._levels[depth - 1].group_size if depth else 1
        bits = round(8 * sharing * (self._levels[depth].bandwidth_bytes_per_s or 0))
        bucket = ["rate", f"{bits}bit", "burst", str(BURST_BYTES), "latency"]
        _call(*tc, "qdisc", "add", "dev", device, "root", "tbf", *bucket, f"{QUEUE_S * 1e3:g}ms")

    def _remove(self) -> None:
        names = map(self._name, range(self._count))
        made = [("ip", "netns", "delete", name) for name in names]  # cables go with an end
        for depth in range(1, len(self._levels)):
            for device in range(0, self._count, self._levels[depth - 1].group_size):
                made.append(("ip", "link", "delete", f"{self._tag}l{depth}_{device}"))
        made += [("ip", "link", "delete", bridge) for bridge in self._bridges()]
        for command in made:
            with contextlib.suppress(RuntimeError):  # it was not made
                _call(*command)

    def run(self, command: Sequence[str], folder: Path, timeout_s: float) -> None:
        """Run Python with these arguments as one rank in every namespace, as torchrun would.

        What rank N prints lies in ``folder``, as ``rankN.txt``.

        Raises:
            RuntimeError: a rank failed or took too long; all are ended.
        """
        ranks = [self._start(number, command, folder) for number in range(self._count)]
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
        numbers = {"RANK": rank, "WORLD_SIZE": self._count, "MASTER_PORT": PORT}
        numbers |= {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "OMP_NUM_THREADS": 1}
        environment = {**os.environ, **{name: str(number) for name, number in numbers.items()}}
        environment |= {"MASTER_ADDR": address(0), "GLOO_SOCKET_IFNAME": DEVICE}
        environment |= {"PYTHONSAFEPATH": "1"}
        environment |= {"RES_OPTIONS": "timeout:1 attempts:1"}  # no name server answers in there
        inside = ["ip", "netns", "exec", self._name(rank), sys.executable, *command]
        with (folder / f"rank{rank}.txt").open("w") as printed:
            return subprocess.Popen(inside, env=environment, stdout=printed, stderr=printed)


def answered(levels: Sequence[LinkLevel], module: str, asked: Any, timeout_s: float) -> Any:
    """What ranks over held links answer; rank 0 of ``module`` writes it.

    Each runs ``python -m MODULE QUESTION.json ANSWER.json``.

    Raises:
        RuntimeError: as :meth:`HeldLinks.run`.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(
        path for path in (str(BENCHMARKS), os.environ.get("PYTHONPATH", "")) if path
    )
    with tempfile.TemporaryDirectory() as name, HeldLinks(levels) as links:
        question, answer = Path(name, "question.json"), Path(name, "answer.json")
        question.write_text(json.dumps(asked))
        links.run(["-m", module, str(question), str(answer)], Path(name), timeout_s)
        return json.loads(answer.read_text())


def address(number: int) -> str:
    """Address of a node."""
    return f"{SUBNET}.{number + 1}"


def _call(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
