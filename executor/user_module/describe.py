"""ModelSpec of a foreign module.

A Hugging Face ``config`` states its shape. Any other module runs once on fake tensors, and its
first layer is read off: linear layers around attention, heads, activation. The parameter count must
match the module's, or it is refused: nothing is priced as something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...spec.errors import InputError
from ...spec.huggingface.config import model_from_config
from ...spec.model.feed_forward import Activation, Mlp
from ...spec.model.mixers import Attention
from ...spec.model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    ModelSpec,
    NormKind,
    Tower,
)
from .layers import find_layers

ROWS, TOKENS = 2, 16
ACTIVATIONS: dict[Any, Activation] = {F.gelu: "gelu", F.relu: "relu", F.silu: "swiglu"}


class _Linear(NamedTuple):
    """A called linear layer: widths, and bias or not."""

    inputs: int
    outputs: int
    bias: bool


class _AttentionCall(NamedTuple):
    """Core attention that was called."""

    heads: int
    kv_heads: int
    head_dim: int
    causal: bool


@dataclass
class _LayerTrace:
    """Calls of one layer, in order."""

    before: list[_Linear] = field(default_factory=list)
    after: list[_Linear] = field(default_factory=list)
    attended: _AttentionCall | None = None
    activation: Activation | None = None


class _CallTracer(TorchFunctionMode):
    """Records linear layers, attention and activations while enabled."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: _LayerTrace | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function and record it."""
        kwargs = kwargs or {}
        if self.seen is not None:
            self._note(self.seen, func, args, kwargs)
        return func(*args, **kwargs)

    @staticmethod
    def _note(seen: _LayerTrace, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if func in (F.linear, torch._C._nn.linear):
            bias = args[2] if len(args) > 2 else kwargs.get("bias")
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            linear = _Linear(weight.shape[1], weight.shape[0], bias is not None)
            (seen.before if seen.attended is None else seen.after).append(linear)
        elif func in (F.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention):
            query, key = args[:2]
            masked = kwargs.get("is_causal", False) or _is_causal(args, kwargs)
            seen.attended = _AttentionCall(query.shape[-3], key.shape[-3], query.shape[-1], masked)
        elif func is F.multi_head_attention_forward:
            _note_whole_attention(seen, args, kwargs)
        elif func in ACTIVATIONS or func is torch._C._nn.gelu:
            tanh = kwargs.get("approximate") == "tanh"
            seen.activation = "gelu_tanh" if tanh else ACTIVATIONS.get(func, "gelu")


def _note_whole_attention(seen: _LayerTrace, args: Any, kwargs: dict[str, Any]) -> None:
    width, heads, weight, bias = args[3:7]
    output, output_bias = args[11:13]
    causal = kwargs.get("is_causal", False) or kwargs.get("attn_mask") is not None
    seen.before.append(_Linear(weight.shape[1], weight.shape[0], bias is not None))
    seen.attended = _AttentionCall(heads, heads, width // heads, causal)
    seen.after.append(_Linear(output.shape[1], output.shape[0], output_bias is not None))


def _is_causal(args: Any, kwargs: dict[str, Any]) -> bool:
    mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
    return isinstance(mask, Tensor)


def describe(module: nn.Module, name: str = "module", layers: str | None = None) -> ModelSpec:
    """Describe a module as far as plans need.

    Args:
        module: with a Hugging Face ``config``, or one from token numbers (batch, seq) to logits
            (batch, seq, vocabulary) by layers of one kind.
        name: of the model.
        layers: dotted name of the list of layers; None to take the repeated ones.

    Raises:
        InputError: what it does is not understood.
    """
    config = getattr(module, "config", None)
    if hasattr(config, "to_dict"):
        spec, _ = model_from_config(config.to_dict(), name, "model")  # type: ignore[union-attr]
    else:
        spec = _traced(module, name, layers)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    counted = spec.param_count()
    if parameters != counted:
        allowed = f"one of {counted} parameters, which is what was understood of it"
        raise InputError("model", f"{type(module).__name__} with {parameters}", allowed)
    return spec


def _traced(module: nn.Module, name: str, layers: str | None) -> ModelSpec:
    repeated = find_layers(module, layers)
    seen, hidden = _first_layer(module, repeated.blocks[0])
    norm = _norm_kind(repeated.blocks[0])
    tables = [m for m in module.modules() if isinstance(m, nn.Embedding)]
    outside = _outside(module, repeated.blocks)
    words = max(tables, key=lambda table: table.num_embeddings)
    positions = sum(t.num_embeddings for t in tables if t is not words)
    kind = type(repeated.blocks[0]).__name__
    block = _block(kind, seen, hidden, norm, rotary=not positions)
    heads = [m for m in outside if isinstance(m, nn.Linear)]
    if len(heads) != 1 or heads[0].out_features != words.num_embeddings:
        raise InputError("model", type(module).__name__, "one projection to the vocabulary")
    last_norm = any(m.__class__.__name__.lower().endswith("norm") for m in outside)
    runs = (
        LayerRun(
            layer=EmbeddingLayer(vocab=words.num_embeddings, hidden=hidden, positions=positions)
        ),
        LayerRun(layer=block, count=len(repeated.blocks)),
        LayerRun(
            layer=HeadLayer(
                vocab=words.num_embeddings,
                hidden=hidden,
                norm=norm if last_norm else None,
                bias=heads[0].bias is not None,
            )
        ),
    )
    tied = heads[0].weight is words.weight
    return ModelSpec(name=name, towers=(Tower(name="text", layers=runs),), tie_embeddings=tied)


def _first_layer(module: nn.Module, block: nn.Module) -> tuple[_LayerTrace, int]:
    """Trace the first layer's calls, and its input width."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    watch, widths = _CallTracer(), list[int]()

    def begin(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensor = next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
        widths.append(tensor.shape[-1])
        watch.seen = seen

    def end(*_: Any) -> None:
        watch.seen = None

    seen = _LayerTrace()
    hooks = [
        block.register_forward_pre_hook(begin, with_kwargs=True),
        block.register_forward_hook(end),
    ]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), _training(module), watch:
            module(torch.zeros((ROWS, TOKENS), dtype=torch.int64))
    except Exception as error:
        why = " ".join(str(error).split())[:160]
        allowed = f"a module of token numbers (batch, seq), with a config otherwise ({why})"
        raise InputError("model", type(module).__name__, allowed) from None
    finally:
        for hook in hooks:
            hook.remove()
    return seen, widths[0]


@contextmanager
def _training(module: nn.Module) -> Iterator[None]:
    was = module.training
    module.train()
    try:
        yield
    finally:
        module.train(was)


def _block(kind: str, seen: _LayerTrace, hidden: int, norm: NormKind, rotary: bool) -> BlockLayer:
    """The block that made these calls.

    Without a position table, heads are assumed to rotate.

    Raises:
        InputError: it is no attention followed by a perceptron.
    """
    attended = seen.attended
    if attended is None or len(seen.after) not in (3, 4) or seen.activation is None:
        raise InputError("layers", kind, "attention, then a perceptron of two or three products")
    output, *wide, down = seen.after
    heads = Attention(
        heads=attended.heads,
        kv_heads=attended.kv_heads,
        head_dim=attended.head_dim,
        rotary=rotary,
        qkv_bias=any(linear.bias for linear in seen.before),
        out_bias=output.bias,
        mask="causal" if attended.causal else "full",
    )
    mlp = Mlp(ffn=down.inputs, activation=seen.activation, bias=down.bias)
    if mlp.gated != (len(wide) == 2):
        description = f"{seen.activation} over {len(wide)} products"
        raise InputError("layers", description, "a gate for silu, none for gelu and relu")
    return BlockLayer(hidden=hidden, attention=heads, mlp=mlp, norm=norm)


def _norm_kind(block: nn.Module) -> NormKind:
    norms = [m for m in block.modules() if m.__class__.__name__.lower().endswith("norm")]
    biased = any(getattr(norm, "bias", None) is not None for norm in norms)
    return "layernorm" if biased else "rmsnorm"


def _outside(module: nn.Module, blocks: tuple[nn.Module, ...]) -> list[nn.Module]:
    inside = {id(child) for block in blocks for child in block.modules()}
    return [m for m in module.modules() if id(m) not in inside and not list(m.children())]


__all__ = ["describe"]
