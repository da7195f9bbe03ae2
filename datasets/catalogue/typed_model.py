"""A model in typed keys: a few sizes and switches, as a person writes them in YAML or JSON.

    layers: 32            # blocks; required, as are hidden, heads and vocab
    hidden: 4096
    ffn: 11008            # left out: 4 x hidden, or for swiglu 8/3 x hidden, up to a multiple of 64
    heads: 32
    kv_heads: 8           # left out: heads
    head_dim: 128         # left out: hidden / heads
    vocab: 32000
    activation: swiglu    # gelu | gelu_tanh | swiglu
    norm: rmsnorm         # layernorm | rmsnorm
    norm_eps: 1.0e-5
    position: rope        # rope | learned | none
    positions: 2048       # learned only; left out: the workload's sequence length
    rope_theta: 10000     # rope only
    tie_embeddings: false
    qkv_bias: false       # and out_bias, mlp_bias, qk_norm
    window: 4096          # sliding window in tokens; left out: full attention
    name: mine

What is left out takes the value shown and is listed as an assumption. ``family: gpt2`` sets the
values that GPT-2 has (gelu_tanh, layernorm, learned positions, biases, tied embeddings) instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from ...spec.errors import InputError, NotBuiltError, nearest_divisor
from ...spec.huggingface import ModelAndAssumptions, decoder
from ...spec.model import (
    Activation,
    Attention,
    BlockLayer,
    EmbeddingLayer,
    LayerRun,
    Mlp,
    NormKind,
)
from ...spec.report import Assumption
from ...spec.typed_keys import TypedKeys

REQUIRED = ("layers", "hidden", "heads", "vocab")
POSITIONS = ("rope", "learned", "none")
FLAGS = ("tie_embeddings", "qkv_bias", "out_bias", "mlp_bias", "qk_norm")
EXPERT_KEYS = ("experts", "topk", "shared_experts", "expert_ffn")
FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "activation": "swiglu",
        "norm": "rmsnorm",
        "norm_eps": 1e-5,
        "position": "rope",
        "rope_theta": 10000.0,
        **dict.fromkeys(FLAGS, False),
    },
    "gpt2": {
        "activation": "gelu_tanh",
        "norm": "layernorm",
        "norm_eps": 1e-5,
        "position": "learned",
        "rope_theta": 10000.0,
        **dict.fromkeys(FLAGS, True),
        "qk_norm": False,
    },
}
KNOWN = (
    *REQUIRED,
    "ffn",
    "kv_heads",
    "head_dim",
    *FAMILY_DEFAULTS["llama"],
    "positions",
    "window",
    "family",
    "name",
)
FFN_MULTIPLE = 64


class _ModelKeys(TypedKeys):
    """Typed keys with a family's defaults; every default taken is an assumption."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        super().__init__(document, where)
        self.assumptions: list[Assumption] = []
        family = self.choice("family", tuple(FAMILY_DEFAULTS)) if self.has("family") else "llama"
        self.defaults = FAMILY_DEFAULTS[family]
        self.why = f"left out; the default of family {family}"

    def assume(self, key: str, value: Any, why: str = "") -> Any:
        """Record the value taken for a key that was left out, and return it."""
        self.assumptions.append(Assumption(path=f"model.{key}", value=value, why=why or self.why))
        return value

    def choice_or_default(self, key: str, allowed: tuple[str, ...]) -> str:
        if self.has(key):
            return self.choice(key, allowed)
        return str(self.assume(key, self.defaults[key]))

    def flag_or_default(self, key: str) -> bool:
        return self.flag(key) if self.has(key) else bool(self.assume(key, self.defaults[key]))

    def number_or_default(self, key: str) -> float:
        return self.number(key) if self.has(key) else float(self.assume(key, self.defaults[key]))


def model_from_keys(document: Mapping[str, Any], name: str, where: str) -> ModelAndAssumptions:
    """The model that typed keys describe, and what was assumed of it.

    Args:
        document: the keys of the module docstring.
        name: what to call the model if the keys do not.
        where: how to name the document in an error.

    Raises:
        InputError: an unknown, missing, unusable or contradictory key.
        NotBuiltError: experts.
    """
    for key in EXPERT_KEYS:
        if key in document:
            raise NotBuiltError(f"{where}: mixture of experts ({key})", "use a dense model")
    keys = _ModelKeys(document, where)
    keys.refuse_unknown(KNOWN)
    keys.require(REQUIRED)
    hidden, vocab, layers = keys.count("hidden"), keys.count("vocab"), keys.count("layers")
    activation = cast(Activation, keys.choice_or_default("activation", get_args(Activation)))
    norm = cast(NormKind, keys.choice_or_default("norm", get_args(NormKind)))
    eps = keys.number_or_default("norm_eps")
    position = keys.choice_or_default("position", POSITIONS)
    attention = _attention(keys, hidden, rotary=position == "rope")
    bias = keys.flag_or_default("mlp_bias")
    mlp = Mlp(ffn=_ffn(keys, hidden, activation), activation=activation, bias=bias)
    block = BlockLayer(hidden=hidden, attention=attention, mlp=mlp, norm=norm, norm_eps=eps)
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden, positions=_positions(keys, position))
    tied = keys.flag_or_default("tie_embeddings")
    title = keys.text("name") if keys.has("name") else name
    runs = (LayerRun(layer=block, count=layers),)
    model = decoder(title, embedding, runs, norm=norm, norm_eps=eps, tied=tied)
    return model, tuple(keys.assumptions)


def _attention(keys: _ModelKeys, hidden: int, *, rotary: bool) -> Attention:
    heads = keys.count("heads")
    if keys.has("kv_heads"):
        kv_heads = keys.count("kv_heads")
    else:
        kv_heads = int(keys.assume("kv_heads", heads, "left out; as many as heads"))
    if heads % kv_heads:
        near = nearest_divisor(kv_heads, heads)
        raise keys.error("kv_heads", f"a divisor of heads {heads}", near)
    if keys.has("head_dim"):
        head_dim = keys.count("head_dim")
    elif hidden % heads:
        near = nearest_divisor(heads, hidden)
        raise keys.error("heads", f"a divisor of hidden {hidden}, or a head_dim", near)
    else:
        head_dim = int(keys.assume("head_dim", hidden // heads, "left out; hidden / heads"))
    if rotary and head_dim % 2:
        allowed = "an even number (rotary positions)"
        raise InputError(f"{keys.where}: head_dim", head_dim, allowed, head_dim + 1)
    if not rotary and keys.has("rope_theta"):
        raise keys.error("rope_theta", "nothing unless position is rope")
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary=rotary,
        rope_theta=keys.number_or_default("rope_theta") if rotary else 10000.0,
        qkv_bias=keys.flag_or_default("qkv_bias"),
        out_bias=keys.flag_or_default("out_bias"),
        qk_norm=keys.flag_or_default("qk_norm"),
        window=keys.count("window") if keys.has("window") else None,
    )


def _ffn(keys: _ModelKeys, hidden: int, activation: Activation) -> int:
    if keys.has("ffn"):
        return keys.count("ffn")
    if activation != "swiglu":
        return int(keys.assume("ffn", 4 * hidden, "left out; 4 x hidden"))
    wanted = -(-8 * hidden // 3)
    rounded = -(-wanted // FFN_MULTIPLE) * FFN_MULTIPLE
    why = f"left out; 8/3 x hidden for swiglu, up to a multiple of {FFN_MULTIPLE}"
    return int(keys.assume("ffn", rounded, why))


def _positions(keys: _ModelKeys, position: str) -> int | None:
    if position == "learned":
        if keys.has("positions"):
            return keys.count("positions")
        keys.assume("positions", None, "left out; as many as the workload's sequence has tokens")
        return None
    if keys.has("positions"):
        raise keys.error("positions", "nothing unless position is learned")
    return 0
