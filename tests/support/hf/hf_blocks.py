"""Blocks of the transformers library beside the layers that are lowered for them.

A case names a configuration class, its sizes and a part of the model it makes. The model runs
once to see what it hands to that part; then the part runs alone, is traced, and is held against
the lowering of the layer that the same configuration describes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import cache, partial
from typing import Any

import torch
from hf.hf_case import ENDS, VOCAB, BlockCase
from hf.hf_cases import CASES
from hf.hf_trace import Trace, trace
from torch.nn.functional import cross_entropy

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape, TowerInputShape
from shardwright.spec.choices import AttentionImpl
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.strategy import LayerStrategy

IMPLEMENTATIONS: dict[AttentionImpl, str] = {"unfused": "eager", "flash": "sdpa"}
TORCH_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def eager_stack(attention: AttentionImpl) -> StackSpec:
    """Plain eager torch as the library runs it: nothing fused but, where asked, attention."""
    return StackSpec(name="transformers", version="5.23.0", attention=attention)


class _End(torch.nn.Module):
    """Parts of a model in a row, and its loss: what is no module of its own in the library."""

    def __init__(self, loss: Any = None, **parts: torch.nn.Module) -> None:
        super().__init__()
        self.parts, self._loss = torch.nn.Sequential(OrderedDict(parts)), loss

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The loss of (batch, tokens, hidden) activations, or what the parts make of them."""
        x = self.parts(x)
        if self._loss is None:
            return x
        labels = torch.randint(0, x.shape[-1], x.shape[:-1])
        return self._loss(x, labels)


class _FirstToken(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, :]


def _end(case: BlockCase, attention: AttentionImpl, dtype: torch.dtype) -> tuple[_End, int]:
    """The end of a model that a case is about, and how wide its input is."""
    import transformers as library

    config = case.configuration()
    config._attn_implementation = IMPLEMENTATIONS[attention]
    made: Any = getattr(library, case.part)(config).to(dtype).train()
    if case.kind == "projector":
        return _End(projector=_projector(made.model)), config.vision_config.hidden_size
    if case.kind == "classifier":
        parts = {"norm": made.vit.layernorm, "first": _FirstToken(), "classes": made.classifier}
        return _End(cross_entropy, **parts), config.hidden_size
    if case.config == "BertConfig":
        return _End(_loss_of_all, head=made.cls), config.hidden_size
    loss = partial(_own_loss, made)
    return _End(loss, norm=made.model.norm, projection=made.lm_head), config.hidden_size


def _projector(model: Any) -> torch.nn.Module:
    if hasattr(model, "visual"):
        return _Mergers(model.visual)
    projector: torch.nn.Module = model.multi_modal_projector
    return _Sized(projector) if hasattr(projector, "patch_merger") else projector


class _Mergers(torch.nn.Module):
    """A merger and those of DeepStack, all of the same input and added up."""

    def __init__(self, tower: Any) -> None:
        super().__init__()
        self.merger = tower.merger
        self.further = getattr(tower, "deepstack_merger_list", torch.nn.ModuleList())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        out: torch.Tensor = self.merger(x)
        for further in self.further:
            out = out + further(x)
        return out


class _Sized(torch.nn.Module):
    """A projector that is told the sizes of the images, square ones here."""

    def __init__(self, projector: Any) -> None:
        super().__init__()
        self.projector = projector

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = math.isqrt(x.shape[1]) * self.projector.patch_merger.patch_size
        sizes = torch.tensor([[side, side]] * x.shape[0])
        out: torch.Tensor = self.projector(x.flatten(0, 1), sizes)
        return out


def _loss_of_all(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.flatten(0, 1), labels.flatten())


def _own_loss(model: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model.loss_function(logits=logits, labels=labels, vocab_size=VOCAB)
    return loss


@cache
def block_trace(name: str, attention: AttentionImpl, dtype: str) -> Trace:
    """Trace the library's block of a case."""
    from transformers import AutoModel

    case = next(case for case in CASES if case.name == name)
    torch.manual_seed(0)
    if case.kind in ENDS:
        end, width = _end(case, attention, TORCH_TYPES[dtype])
        x = torch.randn(
            (case.batch, case.seq_len, width), dtype=TORCH_TYPES[dtype]
        ).requires_grad_()
        return trace(end, lambda: end(x))
    model = AutoModel.from_config(
        case.configuration(), attn_implementation=IMPLEMENTATIONS[attention]
    )
    model = model.to(TORCH_TYPES[dtype]).train()
    part = model.get_submodule(case.part)
    args, kwargs = _inputs_of(case, model, part)
    return trace(part, lambda: _first(part(*args, **kwargs)))


def _inputs_of(case: BlockCase, model: Any, part: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model hands to its part; activations as leaves that ask for gradients."""
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    handle = part.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True
    )
    given: dict[str, Any] = {name: _model_input(case, name, model.dtype) for name in case.inputs}
    if "input_ids" in given:
        given["use_cache"] = False
    with torch.no_grad():
        model.get_submodule(case.tower)(**given)
    handle.remove()
    args, kwargs = seen[0]
    return tuple(map(_leaf, args)), {name: _leaf(value) for name, value in kwargs.items()}


def _model_input(case: BlockCase, name: str, dtype: torch.dtype) -> torch.Tensor:
    side = case.sizes.get("vision_config", case.sizes).get("image_size")
    if name == "pixel_values":
        return torch.rand((case.batch, 3, side, side), dtype=dtype)
    if name == "hidden_states":
        patch = case.sizes["vision_config"]["patch_size"]
        return torch.rand((case.batch * case.seq_len, 3 * 2 * patch * patch), dtype=dtype)
    if name == "grid_thw":
        grid = math.isqrt(case.seq_len)
        return torch.tensor([[1, grid, grid]] * case.batch)
    if name == "image_sizes":
        return torch.tensor([[side, side]] * case.batch)
    return torch.randint(0, VOCAB, (case.batch, case.seq_len))


def _leaf(value: Any) -> Any:
    """Activations, (batch, tokens, width) or packed, become leaves; masks and tables stay."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim in (2, 3):
        return value.detach().clone().requires_grad_()
    return value


def _first(value: Any) -> torch.Tensor:
    return value[0] if isinstance(value, tuple) else value


def lowered_block(case: BlockCase, attention: AttentionImpl, dtype: str) -> LoweredLayer:
    """The case's layer on one rank under :func:`eager_stack`."""
    layer = case.our_layer()
    reads = isinstance(layer, BlockLayer) and layer.cross_attention is not None
    source = TowerInputShape(tokens=case.seq_len, hidden=layer.hidden, read=True)
    shape = LayerShape(
        strategy=LayerStrategy(),
        before=None,
        batch=case.batch,
        seq_len=case.seq_len,
        dtype=dtype,
        stack=eager_stack(attention),
        sources=(source,) if reads else (),
    )
    return lower_layer(layer, shape)


def kept_bytes(lowered: LoweredLayer) -> int:
    """What is kept from the forward pass for the backward pass, its input where it is saved."""
    return lowered.forward.change_bytes - lowered.output_bytes + lowered.input_bytes
