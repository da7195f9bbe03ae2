"""torch names that differ between releases, and checks of private ones.

For torch 2.11 and later. Renamed names are defined here once; private or unstable ones are listed,
so that one call reports what a given torch lacks before anything is built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._autograd import DeviceType

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

MIN_TORCH = "2.11"
"""The oldest release that the executor is tried on."""

_IS_RENAMED = hasattr(dist, "all_gather_single")
all_gather_single: Callable[..., Any] = (
    dist.all_gather_single if _IS_RENAMED else dist.all_gather_into_tensor
)
"""``(output, input, group)``: every rank's input, one after the other; its name before 2.13 was
``all_gather_into_tensor``."""
reduce_scatter_single: Callable[..., Any] = (
    dist.reduce_scatter_single if _IS_RENAMED else dist.reduce_scatter_tensor
)
"""``(output, input, group)``: this rank's part of the sum; formerly ``reduce_scatter_tensor``."""

PRIVATE_NAMES = (
    "torch.distributed.fsdp._fully_shard._fsdp_api:AllGather",
    "torch.distributed.fsdp._fully_shard._fsdp_api:ReduceScatter",
    "torch.distributed.fsdp._fully_shard._fsdp_collectives:DefaultAllocMixin",
    "torch:UntypedStorage._cdata",
    "torch:_foreach_mul_",
    "torch:_foreach_norm",
    "torch:_fused_sdp_choice",
    "torch:_scaled_dot_product_flash_attention_for_cpu",
    "torch:_softmax_backward_data",
    "torch:ops.aten._fused_adamw_",
    "torch:ops.aten._scaled_dot_product_flash_attention_for_cpu_backward",
    "torch:ops.aten.embedding_dense_backward",
    "torch:ops.aten.sigmoid_backward",
    "torch:ops.c10d._allgather_base_",
    "torch:ops.c10d._reduce_scatter_base_",
    "torch:ops.c10d.allreduce_",
    "torch:ops.c10d.alltoall_base_",
    "torch:ops.c10d.recv_",
    "torch:ops.c10d.send",
    "torch._C._autograd:DeviceType.CUDA",
    "torch._C._autograd:_KinetoEvent.correlation_id",
    "torch._C._autograd:_KinetoEvent.device_type",
    "torch._C._autograd:_KinetoEvent.end_ns",
    "torch._C._autograd:_KinetoEvent.is_async",
    "torch._C._autograd:_KinetoEvent.is_user_annotation",
    "torch._C._autograd:_KinetoEvent.linked_correlation_id",
    "torch._C._autograd:_KinetoEvent.device_resource_id",
    "torch._C._autograd:_KinetoEvent.start_ns",
    "torch._C._autograd:_KinetoEvent.start_thread_id",
    "torch._C._distributed_c10d:FileStore",
    "torch._C._distributed_c10d:PrefixStore",
    "torch._C._distributed_c10d:Store",
    "torch._C._distributed_c10d:TCPStore",
    "torch._C._profiler:_RecordFunctionFast",
    "torch.cuda:_sleep",
    "torch.cuda.memory:_record_memory_history",
    "torch.cuda.memory:_snapshot",
    "torch.distributed:ProcessGroup.unbox",
    "torch.distributed.checkpoint.default_planner:DefaultLoadPlanner.lookup_tensor",
    "torch.distributed.checkpoint.default_planner:DefaultSavePlanner.lookup_object",
    "torch.distributed.device_mesh:DeviceMesh.from_group",
    "torch.distributed._symmetric_memory:_fused_all_gather_matmul_fallback",
    "torch.distributed._symmetric_memory:_fused_matmul_reduce_scatter_fallback",
    "torch.distributed._symmetric_memory:get_symm_mem_workspace",
    "torch.distributed.distributed_c10d:_get_default_store",
    "torch.distributed.fsdp:FSDPModule._get_fsdp_state",
    "torch.distributed.fsdp:FSDPModule.set_force_sum_reduction_for_comms",
    "torch.distributed.fsdp:FSDPModule.set_gradient_divide_factor",
    "torch.distributed.fsdp:FSDPModule.set_modules_to_backward_prefetch",
    "torch.distributed.fsdp:FSDPModule.set_requires_gradient_sync",
    "torch.distributed.fsdp:FSDPModule.set_reshard_after_backward",
    "torch.distributed.fsdp._fully_shard._fsdp_common:TrainingState.POST_BACKWARD",
    "torch.distributed.fsdp._fully_shard._fsdp_common:TrainingState.PRE_BACKWARD",
    "torch.distributed.fsdp._fully_shard._fsdp_param:FSDPParam.unsharded_param",
    "torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup.post_backward",
    "torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup.reshard",
    "torch.distributed.fsdp._fully_shard._fsdp_state:"
    "FSDPState._register_root_post_backward_final_callback",
    "torch.distributed.fsdp._fully_shard._fsdp_state:FSDPState._root_post_backward_final_callback",
    "torch.distributed.fsdp._fully_shard._fsdp_common:HSDPMeshInfo",
    "torch.distributed.fsdp._fully_shard._fsdp_param:"
    "FSDPParam._init_sharded_post_forward_param_metadata",
    "torch.distributed.fsdp._fully_shard._fsdp_common:FSDPMeshInfo",
    "torch.distributed.fsdp._fully_shard._fsdp_common:ShardPlacementResult",
    "torch.library:register_fake",
    "torch.nn.attention:sdpa_kernel",
    "torch.profiler.profiler:profile",
    "torch._subclasses.fake_tensor:FakeTensor",
    "torch._subclasses.fake_tensor:FakeTensorMode",
    "torch.testing._internal.distributed.fake_pg:FakeStore",
    "torch.utils._python_dispatch:TorchDispatchMode",
)
"""``module:attribute.path`` of what the executor and the kernels use of torch beyond its stable
surface."""


def missing(names: Iterable[str] = PRIVATE_NAMES) -> list[str]:
    """Names that this torch lacks, each with the reason.

    Args:
        names: ``module:attribute.path``.
    """
    absent = []
    for name in names:
        module, _, path = name.partition(":")
        try:
            reduce(getattr, path.split("."), import_module(module))
        except (ImportError, AttributeError, RuntimeError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            absent.append(f"{module}.{path}: {why}")
    return absent


class FusedProducts(NamedTuple):
    """Products that are one operation with their collective along the first axis.

    ``gather_product``: (rows, k) of each rank and matrices (k, n) -> all rows, or None where they
    are not asked for, and their products. ``product_scatter``: (rows, k) and (k, n) -> this rank's
    rows of the product's sum over ranks. Both take a group's name.
    """

    gather_product: Callable[[Tensor, list[Tensor], str, bool], tuple[Tensor | None, list[Tensor]]]
    product_scatter: Callable[[Tensor, Tensor, str], Tensor]


def symmetric_memory_lack(device: torch.device) -> str | None:
    """What fused products need of a device and of this torch; None: nothing lacks."""
    if device.type != "cuda":
        return f"they need CUDA devices with symmetric memory, and this is {device.type}"
    lacking = missing(("torch.distributed._symmetric_memory:get_symm_mem_workspace",))
    lacking = lacking or missing(
        f"torch:ops.symm_mem.{name}"
        for name in ("fused_all_gather_matmul", "fused_matmul_reduce_scatter")
    )
    return f"this torch lacks {lacking[0]}" if lacking else None


def open_symmetric_memory(group: dist.ProcessGroup) -> str | None:
    """Make a group's symmetric memory, on all its ranks at once; what lacks, or None."""
    from torch.distributed._symmetric_memory import get_symm_mem_workspace

    try:
        get_symm_mem_workspace(group.group_name, min_size=1)
    except RuntimeError as error:
        return f"no symmetric memory between these devices: {' '.join(str(error).split())}"
    return None


def fused_products() -> FusedProducts:
    """Fused products of torch, over symmetric memory."""

    def gather_product(
        x: Tensor, weights: list[Tensor], group: str, rows: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        operation = torch.ops.symm_mem.fused_all_gather_matmul
        whole, products = operation(x, weights, 0, group, return_A=rows)
        return whole, list(products)

    def product_scatter(x: Tensor, weight: Tensor, group: str) -> Tensor:
        out: Tensor = torch.ops.symm_mem.fused_matmul_reduce_scatter(x, weight, "sum", 0, group)
        return out

    return FusedProducts(gather_product, product_scatter)


def fused_product_definitions() -> FusedProducts:
    """Definitions by torch of the same, in plain collectives over any backend."""
    from torch.distributed._symmetric_memory import (
        _fused_all_gather_matmul_fallback,
        _fused_matmul_reduce_scatter_fallback,
    )

    def gather_product(
        x: Tensor, weights: list[Tensor], group: Any, rows: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        return _fused_all_gather_matmul_fallback(x, weights, 0, group, return_A=rows)

    def product_scatter(x: Tensor, weight: Tensor, group: Any) -> Tensor:
        return _fused_matmul_reduce_scatter_fallback(x, weight, "sum", 0, group)

    return FusedProducts(gather_product, product_scatter)


def parameter_groups(unit: FSDPModule) -> list[Any]:
    """Parameter groups of a fully_shard unit, in gather and reduce order.

    A group's ``post_backward()`` casts, keeps or reduces gradients of :func:`unsharded_parameters`,
    as armed; ``reshard()`` frees gathered parameters.
    """
    state: Any = unit._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def unsharded_parameters(group: Any) -> list[Tensor]:
    """Gathered parameters of a group, which keep gradients while freed.

    None on a rank that has never gathered them.
    """
    return [p.unsharded_param for p in group.fsdp_params if hasattr(p, "_unsharded_param")]


def in_backward(group: Any) -> bool:
    """True while a group gathers, ahead or not, for a backward."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

    return bool(group._training_state == TrainingState.PRE_BACKWARD)


def mark_backward_done(group: Any) -> None:
    """Mark a group's part in the current backward as done for fully_shard."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

    group._training_state = TrainingState.POST_BACKWARD


def put_off_end_of_backward(root: FSDPModule) -> None:
    """Leave the end of the next backward to :func:`end_backward`."""
    root._get_fsdp_state()._state_ctx.post_backward_final_callback_queued = True


def end_backward(root: FSDPModule) -> None:
    """Finish a backward as fully_shard does: wait for reductions, free buffers.

    Units without an ended backward end here.

    Args:
        root: the outermost sharded module, after every unit's backward.
    """
    root._get_fsdp_state()._root_post_backward_final_callback()


def is_on_device(event: Any) -> bool:
    """Return True if a profiled event is an accelerator's work.

    A host range is also drawn on the device's side, around the work that it launched; that is only
    a label.
    """
    return bool(event.device_type() != DeviceType.CPU and not event.is_user_annotation())


def is_host_operation(event: Any) -> bool:
    """Return True if a profiled event is a host operation of torch.

    Driver calls are numbered apart from torch's operations, so one number can mean both; they are
    told by naming the operation that made them.
    """
    if event.device_type() != DeviceType.CPU or event.is_async():
        return False
    return bool(event.linked_correlation_id() == 0)


def device_stream(event: Any) -> int:
    """Number of a device operation's stream."""
    return int(event.device_resource_id())


def version() -> str:
    """Version of the running torch."""
    return str(torch.__version__)


__all__ = [
    "MIN_TORCH",
    "PRIVATE_NAMES",
    "FusedProducts",
    "all_gather_single",
    "device_stream",
    "end_backward",
    "fused_product_definitions",
    "fused_products",
    "is_host_operation",
    "is_on_device",
    "mark_backward_done",
    "missing",
    "open_symmetric_memory",
    "parameter_groups",
    "put_off_end_of_backward",
    "reduce_scatter_single",
    "symmetric_memory_lack",
    "unsharded_parameters",
    "version",
]
