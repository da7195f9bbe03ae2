"""Joining the world of ranks: device, backend, process group."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from ..spec.errors import RunError
from .layout import CPU_DEVICE


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
        torch.cuda.set_device(device)
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "nccl",
        store=None if store_path is None else FileStore(store_path, ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout_s),
        device_id=None if device.type == "cpu" else device,
    )
    return device


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
    family = device_name.partition("-")[0]
    if family.lower() not in here.lower():
        raise RunError(f"the plan runs on {device_name}, but this machine has {here}")
    return torch.device("cuda", local_rank)
