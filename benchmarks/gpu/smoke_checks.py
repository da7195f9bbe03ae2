"""One trial of each private or young part of torch in use.

A check takes the device and says what it saw; it raises where the part is gone or wrong.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

Check = Callable[[torch.device], str]


def _pause(device: torch.device) -> str:
    """Device pause, behind which the profiler queues timed work."""
    if device.type != "cuda":
        return "for CUDA devices only"
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(2_000_000)
    end.record()
    torch.cuda.synchronize(device)
    paused_ms = start.elapsed_time(end)
    if paused_ms <= 0:
        raise RuntimeError("no time passed")
    return f"2e6 cycles are {paused_ms:.2f} ms"


def _sharding(device: torch.device) -> str:
    """FSDP2's names, sums without division, parts that quantized transfers replace."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
    from torch.distributed.fsdp._fully_shard import _fsdp_api

    needed = (
        "set_gradient_divide_factor",
        "set_force_sum_reduction_for_comms",
        "set_requires_gradient_sync",
        "set_reshard_after_backward",
        "set_modules_to_backward_prefetch",
        "set_custom_all_gather",
        "set_custom_reduce_scatter",
        "set_all_reduce_hook",
    )
    lacking = [name for name in needed if not hasattr(FSDPModule, name)]
    if lacking:
        raise AttributeError(", ".join(lacking))
    inspect.signature(fully_shard).bind_partial(ignored_params=set(), mp_policy=None)
    MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False)
    if not hasattr(_fsdp_api, "ReduceScatter"):
        raise AttributeError("_fsdp_api.ReduceScatter")
    return f"{len(needed)} methods of FSDPModule"


def _distributed_tensors(device: torch.device) -> str:
    """DTensor as a parameter type, and collectives by the executor's names."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    if not hasattr(DTensor, "to_local"):
        raise AttributeError("DTensor.to_local")
    # One pair of names replaces the other from torch 2.13 on; either will do.
    pairs = {
        "all_gather_single": "all_gather_into_tensor",
        "reduce_scatter_single": "reduce_scatter_tensor",
    }
    names = [new if hasattr(dist, new) else old for new, old in pairs.items()]
    lacking = [name for name in names if not hasattr(dist, name)]
    if lacking:
        raise AttributeError(", ".join(lacking))
    from torch._C._distributed_c10d import FileStore

    return f"{', '.join(names)}, {FileStore.__name__}"


def _marks(device: torch.device) -> str:
    """Cheap trace marks, and the event fields of the trace reader."""
    from torch._C._autograd import DeviceType
    from torch._C._profiler import _RecordFunctionFast
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiler:
        with _RecordFunctionFast("a mark of ours"):
            x = torch.randn(256, 256, device=device)
            x.mm(x)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    events = profiler.profiler.kineto_results.events()
    for event in events:
        fields = (event.start_ns(), event.end_ns(), event.start_thread_id(), event.is_async())
        fields += (event.correlation_id(), event.linked_correlation_id(), event.device_type())
        if None in fields:
            raise ValueError(f"{event.name()} lacks a field")
    if "a mark of ours" not in {event.name() for event in events}:
        raise LookupError("the mark is not in the trace")
    on_device = [e for e in events if e.device_type() != DeviceType.CPU]
    if device.type == "cuda" and not on_device:
        raise LookupError("no kernel of the device is in the trace")
    return f"{len(events)} events, {len(on_device)} of the device"


def _flash(device: torch.device) -> str:
    """Flash kernel with its row sums of exponentials, which rings merge."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    q, k, v = (torch.randn(1, 4, 256, 64, device=device, dtype=dtype) for _ in range(3))
    if device.type == "cuda":
        call = torch.ops.aten._scaled_dot_product_flash_attention
        out, log_sum, *_ = call(q, k, v, 0.0, True, return_debug_mask=False)
    else:
        call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, log_sum = call(q, k, v, 0.0, True)
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(64)
    future = torch.ones(256, 256, dtype=torch.bool, device=device).triu(1)
    scores = scores.masked_fill(future, -math.inf)
    error = relative(log_sum, scores.logsumexp(-1))
    within(max(error, relative(out, scores.softmax(-1) @ v.double())), dtype)
    choice = torch._fused_sdp_choice(q, k, v, None, 0.0, True, enable_gqa=False)
    return f"log-sum-exp off by {error:.1e}; SDPA chooses kernel {int(choice)}"


def _flex(device: torch.device) -> str:
    """Flex attention with a block mask, compiled, as variable lengths need it."""
    if device.type != "cuda":
        return "for CUDA devices only"
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (torch.randn(1, 2, 256, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 256, 256, device=str(device))
    out = torch.compile(flex_attention)(q, k, v, block_mask=mask)
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    error = relative(out, expected)
    within(error, torch.bfloat16)
    return f"off by {error:.1e}"


def _grouped(device: torch.device) -> str:
    """The product of groups of rows with a matrix each."""
    call = getattr(F, "grouped_mm", None) or torch._grouped_mm
    x = torch.randn(64, 32, device=device, dtype=torch.bfloat16)
    weight = torch.randn(4, 32, 48, device=device, dtype=torch.bfloat16)
    ends = torch.tensor([16, 16, 40, 64], device=device, dtype=torch.int32)
    out = call(x, weight, offs=ends)
    parts = x.double().tensor_split(ends[:-1].cpu().long())
    expected = torch.cat([part @ w for part, w in zip(parts, weight.double(), strict=True)])
    error = relative(out, expected)
    within(error, torch.bfloat16)
    return f"{call.__name__} off by {error:.1e}, one group empty"


def _snapshot(device: torch.device) -> str:
    """The allocator's history, which memory is planned from."""
    if device.type != "cuda":
        return "for CUDA devices only"
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        torch.randn(2**20, device=device)
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    events = [event for trace in snapshot["device_traces"] for event in trace]
    if not events or not {"action", "addr", "size", "stream"} <= events[-1].keys():
        raise LookupError("no events with action, addr, size and stream")
    return f"{len(snapshot['segments'])} segments, {len(events)} events"


def _operations(device: torch.device) -> str:
    """Operations of our own namespace, with a form for tensors without data."""
    from shardwright.kernels.dense import norm
    from shardwright.kernels.dispatch import Dispatcher

    x = torch.randn(8, 256, device=device, dtype=torch.bfloat16)
    weight = torch.ones(256, device=device, dtype=torch.bfloat16)
    kernels = Dispatcher()
    error = relative(
        norm.rms_norm(kernels, x, weight, 1e-6), norm.rms_norm_reference(x, weight, 1e-6)
    )
    within(error, torch.bfloat16)
    if not hasattr(torch.ops.shardwright, "rms_norm"):
        raise AttributeError("torch.ops.shardwright.rms_norm")
    return f"rms_norm picked {kernels.choices()[0].variant.name}, off by {error:.1e}"


def _adamw(device: torch.device) -> str:
    leaf = torch.nn.Parameter(torch.randn(1000, device=device))
    leaf.grad = torch.randn(1000, device=device)
    before = leaf.detach().clone()
    torch._foreach_mul_([leaf.grad], torch.tensor(0.5, device=device))
    torch.optim.AdamW([leaf], lr=1e-3, fused=True).step()
    moved = (leaf.detach() - before).abs().max().item()
    if not 0 < moved < 1e-2 or len(torch._foreach_norm([leaf.grad], 2)) != 1:
        raise ValueError(f"a first step of 1e-3 moved a parameter by {moved}")
    return "fused"


def _graphs(device: torch.device) -> str:
    """CUDA graphs: captured once, replayed on what lies in the same places."""
    if device.type != "cuda":
        return "for CUDA devices only"
    x = torch.ones(1024, device=device)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream(device)
    with torch.cuda.stream(side):
        (x + 1).sum()
    torch.cuda.current_stream(device).wait_stream(side)
    with torch.cuda.graph(graph):
        out = x + 1
    x.fill_(41)
    graph.replay()
    if out[0].item() != 42:
        raise ValueError("the replay did not read the new values")
    return "captured and replayed"


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over that of the expectation; keeps NaN."""
    difference = actual.double() - expected.double()
    return float(difference.norm() / expected.double().norm())


def within(error: float, dtype: torch.dtype) -> None:
    """Return whether a type's rounding explains a relative error.

    Raises:
        ValueError: it does not, or the error is not a number.
    """
    limit = 1e-4 if dtype == torch.float32 else 2e-2
    if not error <= limit:
        raise ValueError(f"off by {error:.1e}")


CHECKS: dict[str, Check] = {
    "torch.cuda._sleep": _pause,
    "FSDP2": _sharding,
    "DTensor and collectives": _distributed_tensors,
    "marks and trace events": _marks,
    "flash attention with log-sum-exp": _flash,
    "flex attention": _flex,
    "grouped matmul": _grouped,
    "memory snapshot": _snapshot,
    "torch.library operations": _operations,
    "fused AdamW and foreach": _adamw,
    "CUDA graphs": _graphs,
}
