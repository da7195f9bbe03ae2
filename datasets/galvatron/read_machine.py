"""Bandwidths and latencies of a cluster from Galvatron's files."""

from __future__ import annotations

from pathlib import Path

from ...spec.errors import InputError
from .fields import Fields
from .profile import LinkProfile

MIN_SIZES = 8
"""Least number of message sizes that a line is fitted to, as in Galvatron."""
LatencyTable = dict[int, tuple[tuple[int, float], ...]]


def machine_files(nodes: int, per_node: int) -> tuple[str, str, str, str]:
    """File names of a cluster, in reading order."""
    size = f"{nodes}nodes_{per_node}gpus_per_node.json"
    kinds = ("allreduce_bandwidth", "p2p_bandwidth", "sp_time")
    all_reduce, p2p, times = (f"{kind}_{size}" for kind in kinds)
    return all_reduce, p2p, times, "overlap_coefficient.json"


def read_machine(folder: Path, nodes: int, per_node: int) -> LinkProfile:
    """The links of ``nodes`` nodes of ``per_node`` devices.

    Raises:
        InputError: a file or key that is missing or unusable.
    """
    all_reduce, p2p, times, overlap = (folder / name for name in machine_files(nodes, per_node))
    bandwidths = Fields.of_file(all_reduce)
    pattern = r"allreduce_size_([1-9]\d{0,6})_consec_([01])"
    stages = Fields.of_file(p2p)
    latencies = Fields.of_file(times)
    slowdown = Fields.of_file(overlap)
    slowdown.matching("overlap_coe")
    return LinkProfile(
        allreduce=_allreduce(bandwidths, pattern, nodes * per_node),
        p2p={
            int(m[1]): stages.number(key) for m, key in stages.matching(r"pp_size_([1-9]\d{0,6})")
        },
        allreduce_ms=_latencies(latencies, "allreduce"),
        all2all_ms=_latencies(latencies, "all2all"),
        slowdown=_slowdown(slowdown),
    )


def _allreduce(fields: Fields, pattern: str, devices: int) -> dict[tuple[int, int], float]:
    """Bandwidths by group.

    A group of all devices is both consecutive and strided.
    """
    bandwidths = {(int(m[1]), int(m[2])): fields.number(key) for m, key in fields.matching(pattern)}
    ranks = 2
    while ranks <= devices:
        for consecutive in (1,) if ranks == devices else (1, 0):
            fields.number(f"allreduce_size_{ranks}_consec_{consecutive}")
        ranks *= 2
    if (devices, 1) in bandwidths:
        bandwidths[devices, 0] = bandwidths[devices, 1]
    return bandwidths


def _slowdown(fields: Fields) -> float:
    slowdown = fields.number("overlap_coe")
    if slowdown < 1:
        where = f"{fields.where}: overlap_coe"
        raise InputError(where, slowdown, "a slowdown, which is at least 1", 1.0)
    return slowdown


def _latencies(fields: Fields, kind: str) -> LatencyTable:
    keys = rf"{kind}_size_([1-9]\d{{0,6}})_([1-9]\d{{0,6}})MB_time"
    other_kinds = r"(allreduce|all2all)_size_\d+_\d+MB_time"
    samples: dict[int, list[tuple[int, float]]] = {}
    for match, key in fields.matching(keys, ignored=other_kinds):
        samples.setdefault(int(match[1]), []).append((int(match[2]), fields.number(key)))
    for ranks, rows in samples.items():
        if len(rows) < MIN_SIZES:
            where = f"{fields.where}: {kind}_size_{ranks}_*"
            raise InputError(where, f"{len(rows)} sizes", f"at least {MIN_SIZES}")
    return {ranks: tuple(rows) for ranks, rows in samples.items()}
