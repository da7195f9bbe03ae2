"""Several nodes: one torchrun a node, on one machine, over loopback and between two networks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ranks.rank_pools import RankPool

import shardwright
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.python import simulate
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.codec import canonical_json
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.timeline import from_perfetto

NODES, RANKS = 2, 2
STEPS = 3
LIMIT_S = 150
"""A run takes some 15 s on two idle cores."""
PRINTED, ERRORS = "printed.txt", "errors.txt"
ADDRESSES = ("10.213.77.1", "10.213.77.2")
TYPED = "layers: 2\nhidden: 64\nheads: 4\nkv_heads: 2\nffn: 160\nvocab: 320\n"


@dataclass(frozen=True)
class Node:
    """Where one node's torchrun starts: a command before it, its interface, the first's address."""

    prefix: tuple[str, ...]
    interface: str
    meets_at: str


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of our own sources."""
    folder = tmp_path_factory.mktemp("text")
    for path in (Path(shardwright.__file__).parent / "spec").glob("*.py"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Tensor parallel inside a node, sharded across nodes, on a cluster as a person types it."""
    model = tmp_path_factory.mktemp("model") / "small.yaml"
    model.write_text(TYPED)
    flags = {"tp": 2, "shard": "zero3", "global_batch": 8, "seq_len": 64, "dtype": "fp32"}
    return simulate(str(model), f"{NODES}x{RANKS}xcpu", **flags).plan


@pytest.fixture(scope="module")
def alone(plan: Plan, text: Path, four_ranks: RankPool) -> list[float]:
    """The losses of the same plan on ranks of this machine that one launcher starts."""
    asked = {"steps": STEPS, "data": str(text), "follow_bytes": False}
    result = four_ranks.run(TRAIN_JOB, {**asked, "plan": plan.to_document()})[0]
    losses: list[float] = result["measured"]["losses"]
    return losses


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    node: int, where: Node, port: int, job: Sequence[str], folder: Path
) -> subprocess.Popen[bytes]:
    """One node's torchrun, in a session of its own, in an empty folder of its own."""
    folder.mkdir(exist_ok=True)
    launcher = ["-m", "torch.distributed.run", "--nnodes", str(NODES), "--node-rank", str(node)]
    launcher += ["--nproc-per-node", str(RANKS)]
    launcher += ["--master-addr", where.meets_at, "--master-port", str(port), "-m"]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"GLOO_SOCKET_IFNAME": where.interface}
    environment |= {"RES_OPTIONS": "timeout:1 attempts:1"}  # no name server answers in there
    with (folder / PRINTED).open("w") as out, (folder / ERRORS).open("w") as errors:
        return subprocess.Popen(
            [*where.prefix, sys.executable, *launcher, "shardwright.executor.worker", *job],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )


def run_nodes(nodes: Sequence[Node], plan: Plan, text: Path, folder: Path, *more: str) -> list[str]:
    """What each node printed, once all have ended well."""
    (folder / "plan.json").write_text(canonical_json(plan))
    port = free_port()
    job = [str(folder / "plan.json"), "--steps", str(STEPS), "--data", str(text)]
    job += ["--json", "result.json", *more]
    folders = [folder / f"node{number}" for number in range(len(nodes))]
    started = [start(n, at, port, job, folders[n]) for n, at in enumerate(nodes)]
    try:
        codes = [process.wait(LIMIT_S) for process in started]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):  # it has ended; its ranks end with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert codes == [0] * len(nodes), [(at / ERRORS).read_text() for at in folders]
    return [(at / PRINTED).read_text() for at in folders]


def check_nodes(printed: list[str], folder: Path, losses: list[float]) -> dict[str, Any]:
    """Rank 0's node alone prints and writes, and the losses are those of one machine."""
    assert [line.split()[:2] for line in printed[0].splitlines()] == [
        ["step", str(number)] for number in range(1, STEPS + 1)
    ]
    assert printed[1] == ""
    assert {path.name for path in (folder / "node1").iterdir()} == {PRINTED, ERRORS}
    result: dict[str, Any] = json.loads((folder / "node0" / "result.json").read_text())
    assert result["measured"]["losses"] == pytest.approx(losses, rel=1e-6)
    return result


def test_two_nodes_over_loopback(
    plan: Plan, text: Path, alone: list[float], tmp_path: Path
) -> None:
    loopback = [Node((), "lo", "127.0.0.1")] * NODES
    printed = run_nodes(loopback, plan, text, tmp_path, "--trace", "trace.json")
    result = check_nodes(printed, tmp_path, alone)
    timeline = from_perfetto((tmp_path / "node0" / "trace.json").read_text(), "trace")
    assert {span.stream.rank for span in timeline.spans} == set(range(NODES * RANKS))
    peaks = [timeline.peak(rank) for rank in range(NODES * RANKS)]
    assert max(peaks) == result["measured"]["allocated_bytes"][0]


@pytest.fixture(scope="module")
def two_networks() -> Iterator[list[Node]]:
    """Two network namespaces, each with one end of a cable and an address of its own."""
    ip = shutil.which("ip") or "ip"
    tag = uuid.uuid4().hex[:6]
    names = [f"sw{tag}n{number}" for number in range(NODES)]
    ends = [f"sw{tag}e{number}" for number in range(NODES)]

    def call(*arguments: str) -> None:
        subprocess.run([ip, *arguments], check=True, capture_output=True, text=True, timeout=10)

    try:
        try:
            for name in names:
                call("netns", "add", name)
            call("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for name, end, address in zip(names, ends, ADDRESSES, strict=True):
                call("link", "set", end, "netns", name)
                call("-n", name, "address", "add", f"{address}/24", "dev", end)
                call("-n", name, "link", "set", end, "up")
                call("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield [
            Node((ip, "netns", "exec", name), end, ADDRESSES[0])
            for name, end in zip(names, ends, strict=True)
        ]
    finally:
        for name in names:  # its end of the cable goes with it
            subprocess.run([ip, "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.evidence
@pytest.mark.root
def test_two_nodes_between_two_networks(
    plan: Plan, text: Path, alone: list[float], two_networks: list[Node], tmp_path: Path
) -> None:
    check_nodes(run_nodes(two_networks, plan, text, tmp_path), tmp_path, alone)


def test_a_typed_cluster_of_two_nodes_has_the_ranks_of_both(plan: Plan) -> None:
    (group,) = plan.cluster.groups
    assert (group.nodes, group.devices_per_node) == (NODES, RANKS)
    assert sum(stage.device_count for stage in plan.program.stages) == NODES * RANKS
    problem = resolve(Inputs(cluster=f"{NODES}x{RANKS}xcpu", global_batch=8, seq_len=64))
    assert problem.cluster == plan.cluster


def test_two_clocks_of_one_machine_are_told_apart(four_ranks: RankPool) -> None:
    """Ranks 2 and 3 play another machine, whose clock is an hour ahead."""
    leads = four_ranks.run("ranks.rank_jobs:lead_of_clock", {"ahead_s": 3600, "from_rank": 2})
    assert leads[:2] == [0, 0]
    assert leads[2:] == [pytest.approx(3600e9, abs=60e9)] * 2


def test_one_clock_needs_no_comparison(four_ranks: RankPool) -> None:
    assert (
        four_ranks.run("ranks.rank_jobs:lead_of_clock", {"ahead_s": 3600, "from_rank": 4})
        == [0] * 4
    )
