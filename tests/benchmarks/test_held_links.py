"""Links of network namespaces, held to a rate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from items.executor.throttled_ranks import CASES, WITHOUT, held_plan
from support import held_links

from shardwright.executor.techniques import TECHNIQUES
from shardwright.spec.cluster.cluster_spec import (
    ClusterSpec,
    DeviceGroup,
    LevelName,
    LinkLevel,
    MemoryTiers,
)
from shardwright.spec.plan.technique_groups import used_techniques

RATES = {2: 20e6, 4: 5e6}
SENT_BYTES = 1 << 20
TALK = """
import json, os, socket, sys, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server((os.environ["MASTER_ADDR"], port)) as server:
        for _ in range(2):
            peer, _ = server.accept()
            number, start_s, got = peer.recv(1)[0], time.perf_counter(), 0
            while chunk := peer.recv(1 << 16):
                got += len(chunk)
            print(json.dumps([number, got, time.perf_counter() - start_s]))
elif rank < 3:
    time.sleep(1.0 * (rank - 1))
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(bytes([rank]) + bytes(int(sys.argv[1])))
"""
FAIL = "import os, time; os.environ['RANK'] == '0' and exit(3); time.sleep(30)"


def level(size: int) -> LinkLevel:
    name: LevelName = "intra_node" if size == 2 else "intra_rack"
    return LinkLevel(
        level=name, group_size=size, fabric="1x10G-ETH", bandwidth_bytes_per_s=RATES[size]
    )


@pytest.mark.root
def test_links_are_held_to_the_rate_of_their_level(tmp_path: Path) -> None:
    if reason := held_links.lacking():
        pytest.skip(reason)
    with held_links.HeldLinks([level(2), level(4)]) as links:
        links.run(["-c", TALK, str(SENT_BYTES)], tmp_path, timeout_s=30.0)
        talks = [json.loads(line) for line in (tmp_path / "rank0.txt").read_text().splitlines()]
        with pytest.raises(RuntimeError, match=r"\[3, "):
            links.run(["-c", FAIL], tmp_path, timeout_s=30.0)
    for (number, got, seconds), size in zip(sorted(talks), RATES, strict=True):
        shared = size // 2  # by the devices of a node
        assert (number, got) == (shared, SENT_BYTES)
        assert (
            0.8 < seconds * RATES[size] * shared / SENT_BYTES < 1.5
        )  # headers; other work beside it


def test_levels_without_typed_rates_are_refused() -> None:
    group = DeviceGroup(
        name="cpu", device="cpu", node="local", nodes=2, devices_per_node=1,
        memory=MemoryTiers(hbm_bytes=1),
    )  # fmt: skip
    for untyped in (
        replace(level(2), bandwidth_bytes_per_s=None),
        replace(level(2), oversubscription=2.0),
    ):
        with pytest.raises(ValueError, match="typed rate"):
            held_links.held_levels(ClusterSpec(groups=(group,), levels=(untyped,)))


def test_every_technique_that_runs_is_measured_over_held_links() -> None:
    measured = {name for case in CASES for name in used_techniques(held_plan(case))}
    assert {run.name for run in TECHNIQUES} == measured | {*WITHOUT}
    assert not measured & {*WITHOUT}
