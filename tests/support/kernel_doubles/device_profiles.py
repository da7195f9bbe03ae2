"""Made-up profiles of GPUs, consistent with a made-up machine: for tests, never for prices."""

from __future__ import annotations

import itertools

from shardwright.profiler.store.profiles import fingerprint, machine_facts
from shardwright.spec.cluster.machine_profile import (
    CollectiveRow,
    CopyRow,
    KernelRow,
    MachineProfile,
    Skipped,
)

DEVICE = "H200-SXM-141GB"
FLOPS_PER_S, BYTES_PER_S, LINK_BYTES_PER_S = 7e14, 4e12, 3e11
STREAMED = ("add", "copy", "cast", "fused_adamw", "rms_norm", "embedding")


def device_profile(ranks: int, device: str = DEVICE) -> MachineProfile:
    """Kernels, collectives and copies at fixed rates, of this machine's fingerprint."""
    kernels = [
        KernelRow(
            op="matmul",
            shape=shape,
            dtype="bf16",
            flops=2 * shape[0] * shape[1] * shape[2],
            traffic_bytes=2 * sum(shape),
            time_s=2 * shape[0] * shape[1] * shape[2] / FLOPS_PER_S + 2e-6,
            spread=0.01,
        )
        for shape in itertools.product((64, 512, 4096, 16384), repeat=3)
    ]
    kernels += [
        KernelRow(
            op=op,
            shape=(size,),
            dtype=dtype,
            traffic_bytes=size,
            time_s=size / BYTES_PER_S + 2e-6,
        )
        for op in STREAMED
        for dtype in ("bf16", "fp32")
        for size in (2**12, 2**20, 2**30)
    ]
    collectives = [
        CollectiveRow(
            kind=kind,
            ranks=n,
            payload_bytes=size,
            time_s=(2 if beside else 1) * (size / LINK_BYTES_PER_S + 1e-5),
            beside_product=beside,
        )
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "send")
        for n in range(2, ranks + 1)
        for size in (2**10, 2**30)
        for beside in (False, True)
    ]
    copy = CopyRow(kind="host_to_device", payload_bytes=2**28, time_s=5e-3, pinned=True)
    return MachineProfile(
        device=device,
        fingerprint=fingerprint(device),
        machine=machine_facts(device),
        ranks=ranks,
        measured_at="2026-01-01T00:00:00Z",
        duration_s=200.0,
        kernels=tuple(kernels),
        collectives=tuple(collectives),
        copies=(copy,),
        host_s={"launch": 4e-6, "kernel": 9e-6, "layer_pass": 5e-5, "step": 1e-3},
        kernel_slowdown=1.05,
        overlap_slowdown=1.25,
        skipped=(Skipped(op="nvme_read", why="no folder was given (--nvme FOLDER)"),),
    )
