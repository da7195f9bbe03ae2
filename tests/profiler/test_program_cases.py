"""Chosen kernels are timed as they are named, and those that cannot be timed are left out."""

from __future__ import annotations

import torch

from shardwright.profiler.cases.all_cases import sizes_for
from shardwright.profiler.cases.program_cases import program_cases
from shardwright.spec.report.work_items import Kernel, streamed

CORE = torch.device("cpu")


def test_cases_have_the_sizes_that_were_asked_for() -> None:
    kernels = [
        Kernel("matmul", (24, 40, 56), "fp32", 1, 1),
        Kernel("batched_matmul", (2, 8, 16, 24), "fp32", 1, 1),
        Kernel("flash_attention_backward", (2, 3, 1, 32, 16), "fp32", 1, 1),
        streamed("softmax", 2048, 1, "fp32"),
        streamed("fused_adamw", 999, 1, "fp32"),
        streamed("add", 7, 1, "bf16"),
        streamed("no_such_pass", 2048, 1, "fp32"),
        Kernel("state_space_scan", (1, 2, 1, 64, 8, 8, 16), "fp32", 1, 1),
        streamed("add", 2048, 1, "int64"),
        Kernel("matmul", (24, 40, 56), "fp32", 2, 2),
    ]
    cases = list(program_cases(kernels, sizes_for(CORE, coarse=True), CORE))
    assert [(case.kernel.op, case.kernel.shape) for case in cases] == [
        ("matmul", (24, 40, 56)),
        ("batched_matmul", (2, 8, 16, 24)),
        ("flash_attention_backward", (1, 6, 6, 32, 16)),
        ("softmax", (2048,)),
        ("fused_adamw", (999,)),
        ("add", (7,)),
    ]
    assert all(case.first for case in cases)
    for case in cases:
        case.prepare()()
