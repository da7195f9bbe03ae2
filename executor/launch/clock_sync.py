"""Offset of a rank's clock from rank 0's across machines.

Rank 0 asks every other rank for its time, several times; the shortest round trip gives the tightest
bound (Cristian, 1989, section 3). Ranks of one machine share a clock and ask nothing.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from .consistency import gather_json

ROUNDS = 10
BOOT = Path("/proc/sys/kernel/random/boot_id")

Clock = Callable[[], int]


def this_machine() -> str:
    """Machine name, equal on all its ranks and unique among machines."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return socket.gethostname()


def clock_lead_ns(
    device: torch.device, machine: str | None = None, clock: Clock = time.time_ns
) -> int:
    """Nanoseconds by which this rank's clock leads rank 0's. Collective.

    ``machine``: looked up if None; ``clock``: nanoseconds now.
    """
    names = gather_json(this_machine() if machine is None else machine, device)
    lead = 0
    for rank, name in enumerate(names):
        if name != names[0] and dist.get_rank() in (0, rank):
            lead = _compare(rank, device, clock)
    return lead if dist.get_rank() else 0


def _compare(rank: int, device: torch.device, clock: Clock) -> int:
    """Lead of ``rank``, returned on it and on rank 0."""
    answer = torch.zeros(1, dtype=torch.int64, device=device)
    is_first = dist.get_rank() == 0
    best: tuple[int, int] | None = None
    for _ in range(ROUNDS):
        if not is_first:
            dist.recv(answer, src=0)
            answer.item()  # the question has arrived
            dist.send(torch.tensor([clock()], device=device), dst=0)
            continue
        sent_ns = clock()
        dist.send(answer, dst=rank)
        dist.recv(answer, src=rank)
        answer_ns = int(answer.item())
        round_trip_ns = clock() - sent_ns
        best = min(
            best or (round_trip_ns, 0), (round_trip_ns, answer_ns - sent_ns - round_trip_ns // 2)
        )
    lead = torch.tensor([best[1] if best else 0], dtype=torch.int64, device=device)
    (dist.send(lead, dst=rank) if is_first else dist.recv(lead, src=0))
    return int(lead.item())
