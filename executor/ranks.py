"""Joining the world of ranks: device, backend, process group."""

from __future__ import annotations

import os
import re
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from ..spec.errors import RunError
from .faults import attempt_of
from .layout import CPU_DEVICE

LATE_RANKS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
ENDED = ("1", "3")
"""Values under which a collective that waits too long ends its process; with others it hangs."""

FORMS = ("SXM", "PCIE")
MEMORY = re.compile(r"\d+GB")


def join(device_name: str, timeout_s: float, store_path: str | None) -> torch.device:
    """Make the world's process group; NCCL between CUDA devices, gloo between cores.

    Args:
        device_name: catalogue name of the device.
        timeout_s: how long a collective waits.
        store_path: a file to meet at; None to meet at MASTER_ADDR and MASTER_PORT.

    Raises:
        RunError: this machine lacks the device.
    """
    device = local_device(device_name, int(os.environ.get("LOCAL_RANK", "0")))
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device.type == "cpu":
        torch.set_num_threads(1)
    else:
        _take(device)
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "nccl",
        store=_meeting_place(store_path, ranks, timeout_s),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout_s),
        # Named, it makes every communicator when its group is made, all ranks in one order; else
        # the first messages between stages would make theirs, each waiting for its other end.
        device_id=None if device.type == "cpu" else device,
    )
    return device


def _meeting_place(store_path: str | None, ranks: int, timeout_s: float) -> Store | None:
    """Where ranks leave their addresses; None for the place that torch makes of the environment.

    torchrun keeps one for all its restarts, in which ranks would find the addresses of those that
    ended, so each start of the ranks has a part of it for itself.
    """
    if store_path is not None:
        return FileStore(store_path, ranks)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(
        address, port, is_master=False, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
    )
    return PrefixStore(f"start {attempt_of(os.environ)}", store)


def _take(device: torch.device) -> None:
    """Make ``device`` this process's own, before any library chooses one for it."""
    torch.cuda.set_device(device)
    if os.environ.get(LATE_RANKS) not in ENDED:
        os.environ[LATE_RANKS] = ENDED[-1]


def local_device(device_name: str, local_rank: int) -> torch.device:
    """The torch device of a local rank, which must be what the plan names.

    Raises:
        RunError: no such device here; nothing else is used instead.
    """
    if device_name == CPU_DEVICE:
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        found = f"has {count} CUDA devices" if count else "has no CUDA device"
        raise RunError(f"the plan runs on {device_name}, but this machine {found}")
    here = torch.cuda.get_device_name(local_rank)
    if not is_device(device_name, here):
        raise RunError(f"the plan runs on {device_name}, but this machine has {here}")
    return torch.device("cuda", local_rank)


def is_device(device_name: str, reported: str) -> bool:
    """Whether a device that its driver reports under this name is one of the catalogue's name.

    Its words, but for form and memory, must be words of the report: ``A10`` is no ``A100``. A
    report that says PCIe is of no SXM device.

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
