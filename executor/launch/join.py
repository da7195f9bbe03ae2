"""Joining the world of ranks: device, backend, process group."""

from __future__ import annotations

import os
import re
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from ...spec.errors import RunError
from ..groups.rank_layout import CPU_DEVICE
from ..host.heap import keep_freed_memory
from .fault_injection import attempt_of
from .progress import JOINING, PROGRESS

LATE_RANKS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
ENDED = ("1", "3")
"""Values under which a collective that waits too long ends its process; with others it hangs."""

FORMS = ("SXM", "PCIE")
MEMORY = re.compile(r"\d+GB")
LOOK_S = 0.1
"""Polling interval of a rank that waits for the others."""
MAX_NAMED_RANKS = 8
"""Missing ranks that an error names at most."""
LINGER_S = 1.0
"""How long the rank that hosts the store stays so that the others see who is missing."""


def join(device_name: str, timeout_s: float, store_path: str | None, join_s: float) -> torch.device:
    """Make the world's process group: NCCL on CUDA, gloo on cores.

    Args:
        device_name: catalog name of the device.
        timeout_s: of a collective.
        store_path: a file store, where a launcher watches the ranks; None for MASTER_ADDR and
            MASTER_PORT.
        join_s: how long to wait there for the next rank.

    Raises:
        RunError: this machine lacks the device, or a rank does not come.
    """
    device = local_device(device_name, int(os.environ.get("LOCAL_RANK", "0")))
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device.type == "cpu":
        torch.set_num_threads(1)
        keep_freed_memory()
    else:
        _claim_device(device)
    PROGRESS.mark(JOINING)
    store: Store
    if store_path is None:
        store = _rendezvous(rank, ranks, join_s, timeout_s)
    else:
        store = FileStore(store_path, ranks)
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "nccl",
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout_s),
        # Named, it makes every communicator when its group is made, all ranks in one order; else
        # the first messages between stages would make theirs, each waiting for its other end.
        device_id=None if device.type == "cpu" else device,
    )
    return device


def _rendezvous(rank: int, ranks: int, join_s: float, timeout_s: float) -> Store:
    """Store of the ranks' addresses, returned once all have joined.

    torchrun keeps one store across restarts, with addresses of ended ranks, so each start has its
    own key prefix. Elsewhere rank 0 hosts it.

    Raises:
        RunError: a rank does not come, or rank 0 hosts no store.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_host = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
    if not is_host:
        _await_master(address, port, join_s)
    tcp_store = TCPStore(
        address,
        port,
        is_master=is_host,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        multi_tenant=True,
    )
    store = PrefixStore(f"start {attempt_of(os.environ)}", tcp_store)
    try:
        await_all_ranks(store, rank, ranks, join_s)
    except RunError:
        if is_host:
            time.sleep(LINGER_S)
        raise
    return store


def _await_master(address: str, port: int, join_s: float) -> None:
    """Wait until rank 0 or the launcher hosts the store.

    torch's own wait floods the terminal.

    Raises:
        RunError: nobody does.
    """
    end_s = time.monotonic() + join_s
    while (left_s := end_s - time.monotonic()) > 0:
        try:
            socket.create_connection((address, port), timeout=left_s).close()
        except OSError:
            time.sleep(LOOK_S)
        else:
            return
    silence = f"nobody answers at {address}:{port} (MASTER_ADDR, MASTER_PORT; --join waits longer)"
    raise RunError(f"rank 0 did not join the others within {join_s:.0f} s: {silence}")


def await_all_ranks(store: Store, rank: int, ranks: int, join_s: float) -> None:
    """Register with a store, and wait until every rank has.

    ``join_s``: wait for the next rank, in seconds.

    Raises:
        RunError: some did not come; names them.
    """
    store.set(_arrival(rank), "")
    arrived, seen_s = store.add("come", 1), time.monotonic()
    while (arrived_now := store.add("come", 0)) < ranks:
        if arrived_now > arrived:
            arrived, seen_s = arrived_now, time.monotonic()
        elif time.monotonic() - seen_s > join_s:
            missing = [n for n in range(ranks) if not store.check([_arrival(n)])]
            names = ", ".join(map(str, missing[:MAX_NAMED_RANKS])) + (
                ", …" if missing[MAX_NAMED_RANKS:] else ""
            )
            waited = f"within {join_s:.0f} s after the one before (--join waits longer)"
            names_missing = f"rank {names}" if len(missing) == 1 else f"ranks {names}"
            raise RunError(f"{names_missing} of {ranks} did not join the others {waited}")
        time.sleep(LOOK_S)


def _arrival(rank: int) -> str:
    return f"rank {rank} has come"


def _claim_device(device: torch.device) -> None:
    """Claim ``device`` for this process before any library picks another."""
    torch.cuda.set_device(device)
    if os.environ.get(LATE_RANKS) not in ENDED:
        os.environ[LATE_RANKS] = ENDED[-1]


def local_device(device_name: str, local_rank: int) -> torch.device:
    """The torch device of a local rank, matching the plan's; no fallback.

    Raises:
        RunError: no such device here; nothing else is used instead.
    """
    if device_name == CPU_DEVICE:
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        lack = f"has {count} CUDA devices" if count else "has no CUDA device"
        raise RunError(f"the plan runs on {device_name}, but this machine {lack}")
    reported = torch.cuda.get_device_name(local_rank)
    if not is_device(device_name, reported):
        raise RunError(f"the plan runs on {device_name}, but this machine has {reported}")
    return torch.device("cuda", local_rank)


def is_device(device_name: str, reported: str) -> bool:
    """True if a driver's device name matches the catalog's.

    Its words, except form factor and memory, must be words of the report: ``A10`` is no ``A100``. A
    report with PCIe is no SXM device.

    Args:
        device_name: ``H100-SXM-80GB``, ``RTX-4090-24GB``.
        reported: ``NVIDIA H100 80GB HBM3``, ``NVIDIA GeForce RTX 4090``.
    """
    words = re.split(r"[^A-Z0-9]+", reported.upper())
    parts = device_name.upper().split("-")
    if "PCIE" in words and "SXM" in parts:
        return False
    chip = [part for part in parts if part not in FORMS and not MEMORY.fullmatch(part)]
    return all(word in words for word in chip)
