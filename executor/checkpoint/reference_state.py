"""A checkpoint's whole tensors on one process, the start of verification."""

from __future__ import annotations

import torch

from ..engine.optimizers import COUNTS, MOMENTS
from ..engine.routers import PREFIX
from ..reference.model import Reference
from .engine_state import LOSS_SCALE, MODEL, OPTIMIZER, TECHNIQUES
from .loader import FoundCheckpoint, load_slices
from .tensor_slices import TensorSlice, dtype_of


def fill_reference(reference: Reference, checkpoint: FoundCheckpoint) -> None:
    """Continue the single process from a checkpoint, as a resumed run does.

    Args:
        reference: not yet stepped.
        checkpoint: a valid one.
    """
    tensors, optimizer = checkpoint.manifest.tensors, reference.workload.optimizer
    keys = (*COUNTS[optimizer], *MOMENTS[optimizer])
    slices: dict[str, TensorSlice] = {}
    for name, parameter in reference.parameters.items():
        if not parameter.requires_grad:
            continue
        shape = tensors[MODEL + name].shape  # experts are saved with their rows as one dimension
        slices[MODEL + name] = TensorSlice.unsplit(parameter.detach().view(shape))
        optimizer_state = reference.optimizer.state[parameter]
        for key in keys:
            stored = tensors[f"{OPTIMIZER}{key}.{name}"]
            device = parameter.device if stored.shape else "cpu"
            empty = torch.empty(stored.shape, dtype=dtype_of(stored.dtype), device=device)
            slices[f"{OPTIMIZER}{key}.{name}"] = TensorSlice.unsplit(empty)
            optimizer_state[key] = empty.view(parameter.shape) if stored.shape else empty
    if reference.loss_scale is not None:
        scale = reference.loss_scale.to_tensor()
        slices[LOSS_SCALE] = TensorSlice.unsplit(scale)
    for index, router in reference.routers.items():
        if (name := f"{TECHNIQUES}{PREFIX}{index}") in tensors:
            slices[name] = TensorSlice.unsplit(router.bias)
    load_slices(checkpoint, slices)
    if reference.loss_scale is not None:
        reference.loss_scale.take(scale)
    reference.step_index = checkpoint.manifest.step
