"""Recomputation of a block by operation: names of results, and which are kept.

``ops:save=NAMES`` keeps the named results of a block and its input, and runs everything else
again in the backward pass. Results are named as the weights of their products (``query``, ``up``,
…), and as the operation where there is none: ``attention`` (with the logarithms that its backward
reads), ``dispatch`` and ``combine`` (rows sent to their experts and back). A result of a product
split along its inputs is its sum over the tensor-parallel ranks.

``selective-ops`` is the usual set of torchtitan's selective activation checkpointing
(distributed/activation_checkpoint.py): every second dense product from the first on, attention,
exchanged rows, and with tp the sums. Routers and experts' products run again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from .choices import RECOMPUTE_WORDS, RECOMPUTES
from .errors import InputError, nearest_name
from .model.block_parameters import block_parameters
from .model.feed_forward import Moe
from .model.layers import BlockLayer, MultiTokenLayer
from .model.mixers import Attention, LatentAttention

if TYPE_CHECKING:
    from .model.layers import Layer
    from .model.model_spec import ModelSpec

OPS_PREFIX = "ops:save="
SELECTIVE_OPS = "selective-ops"
INPUT = "input"
ALIASES = {
    "wq": ("query",),
    "wk": ("key",),
    "wv": ("value",),
    "wo": ("output",),
    "w1": ("gate", "up"),
    "w2": ("down",),
    "w3": ("up",),
    "wq_a": ("query_down",),
    "wq_b": ("query_up",),
    "wkv_a": ("kv_down",),
    "wkv_b": ("kv_up",),
}
"""Names that Llama's and DeepSeek's code give: the first that a model has."""
ROW_RESULTS = ("output", "cross_output", "down", "shared_down")
"""Results of products split along their inputs, summed over the tensor-parallel ranks."""
NO_PRODUCTS = ("relative", "conv")


def is_by_operation(recompute: str) -> bool:
    """True if a block keeps named results and runs the rest again."""
    return recompute == SELECTIVE_OPS or recompute.startswith(OPS_PREFIX)


def recomputes_block(recompute: str) -> bool:
    """True if a block's backward runs its forward again, in whole or without named results."""
    return recompute == "full" or is_by_operation(recompute)


def recompute_rank(recompute: str) -> int:
    """Order from least work to most; a kept result saves work, so full is the last."""
    return RECOMPUTES.index(recompute) if recompute in RECOMPUTES else RECOMPUTES.index("full")


@lru_cache(maxsize=1024)
def result_names(block: BlockLayer) -> tuple[str, ...]:
    """Names of a block's results, in order; its input first."""
    names = [INPUT]
    mixes = isinstance(block.attention, (Attention, LatentAttention))
    for product in _products(block):
        if product in ("output", "cross_output") and mixes and "attention" not in names:
            names.append("attention")
        if product == "experts_gate" or (product == "experts_up" and names[-1] != "experts_gate"):
            names.append("dispatch")
        names.append(product)
        if product == "experts_down":
            names.append("combine")
    return tuple(names)


@lru_cache(maxsize=4096)
def kept_results(block: BlockLayer, recompute: str, sums: bool) -> frozenset[str]:
    """Results that a block keeps beside its input; ``sums``: some are sums over ranks."""
    names = result_names(block)
    if recompute.startswith(OPS_PREFIX):
        return frozenset(saved_names(recompute)) & frozenset(names)
    if recompute != SELECTIVE_OPS:
        return frozenset()
    experts = isinstance(block.mlp, Moe)
    dense = [
        name
        for name in _products(block)
        if not (experts and (name.startswith("experts_") or name == "router"))
    ]
    others = ("attention", "dispatch", "combine", *(ROW_RESULTS if sums else ()))
    return frozenset(dense[::2]) | (frozenset(names) & frozenset(others))


def saved_names(recompute: str) -> tuple[str, ...]:
    """Names in ``ops:save=NAMES``."""
    return tuple(recompute.removeprefix(OPS_PREFIX).split(","))


def resolve_recompute(text: str, model: ModelSpec, field: str) -> str:
    """``ops:save=NAMES`` with the model's own names, in its order; other words as they are.

    Raises:
        InputError: an unknown word, no name, or one that no block of the model has.
    """
    if text in RECOMPUTE_WORDS:
        return text
    blocks = [block for layer in model.kinds() if (block := block_of(layer)) is not None]
    known = tuple(dict.fromkeys(name for block in blocks for name in result_names(block)))
    by_names = f"{OPS_PREFIX}NAMES of {', '.join(known)}"
    if not text.startswith("ops"):
        allowed = f"{', '.join(RECOMPUTE_WORDS)}, {by_names}"
        raise InputError(field, text, allowed, nearest_name(text, RECOMPUTE_WORDS))
    if not text.startswith(OPS_PREFIX) or text == OPS_PREFIX:
        raise InputError(field, text, by_names, SELECTIVE_OPS)
    chosen = {INPUT}
    for name in saved_names(text):
        own = next((one for one in (name, *ALIASES.get(name, ())) if one in known), None)
        if own is None:
            names = (*known, *(alias for alias, of in ALIASES.items() if set(of) & set(known)))
            raise InputError(field, name, ", ".join(names), nearest_name(name, names))
        chosen.add(own)
    return OPS_PREFIX + ",".join(name for name in known if name in chosen)


def results_violation(model: ModelSpec, recompute: str) -> str | None:
    """Reason why a plan of the model cannot name these results, or None."""
    try:
        written = resolve_recompute(recompute, model, "recompute")
    except InputError as error:
        return f"recompute {recompute} names {error.given}, which no block of the model has"
    return None if written == recompute else f"recompute {recompute} is written {written}"


def names_elsewhere(name: str, block: BlockLayer) -> str:
    """The name of a result in Llama's or DeepSeek's code; '' if it has none."""
    known = result_names(block)
    for alias, own in ALIASES.items():
        if next((one for one in own if one in known), None) == name:
            return alias
    return ""


def block_of(layer: Layer) -> BlockLayer | None:
    """The block of a layer, or None."""
    block = layer.block if isinstance(layer, MultiTokenLayer) else layer
    return block if isinstance(block, BlockLayer) else None


def _products(block: BlockLayer) -> list[str]:
    """Names of the weights of a block's products, in its order."""
    names = (p.name.rpartition(".") for p in block_parameters(block) if len(p.shape) > 1)
    return [name for name, _, kind in names if kind == "weight" and name not in NO_PRODUCTS]
