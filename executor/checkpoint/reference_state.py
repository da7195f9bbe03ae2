"""A checkpoint's tensors whole, on one process: what verification starts from."""

from __future__ import annotations

import torch

from ..reference.model import Reference
from .engine_state import LOSS_SCALE, MODEL, OPTIMIZER
from .loader import FoundCheckpoint, load_slices
from .tensor_slices import TensorSlice, dtype_of


def fill_reference(reference: Reference, found: FoundCheckpoint) -> None:
    """Have the single process go on from a checkpoint, as a resumed run does.

    Args:
        reference: not yet stepped.
        found: a good checkpoint.
    """
    tensors = found.manifest.tensors
    parts: dict[str, TensorSlice] = {}
    for name, parameter in reference.parameters.items():
        if not parameter.requires_grad:
            continue
        shape = tensors[MODEL + name].shape  # experts are saved with their rows as one dimension
        parts[MODEL + name] = TensorSlice.unsplit(parameter.detach().view(shape))
        kept = reference.optimizer.state[parameter]
        for key in ("step", "exp_avg", "exp_avg_sq"):
            stored = tensors[f"{OPTIMIZER}{key}.{name}"]
            device = parameter.device if stored.shape else "cpu"
            empty = torch.empty(stored.shape, dtype=dtype_of(stored.dtype), device=device)
            parts[f"{OPTIMIZER}{key}.{name}"] = TensorSlice.unsplit(empty)
            kept[key] = empty.view(parameter.shape) if stored.shape else empty
    if reference.loss_scale is not None:
        scale = reference.loss_scale.to_tensor()
        parts[LOSS_SCALE] = TensorSlice.unsplit(scale)
    load_slices(found, parts)
    if reference.loss_scale is not None:
        reference.loss_scale.take(scale)
    reference.step_index = found.manifest.step
