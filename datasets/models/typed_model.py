"""Models in typed keys.

A few sizes and switches, in YAML or JSON.

    layers: 32            # blocks; required, as are hidden, heads and vocab
    hidden: 4096
    ffn: 11008            # left out: 4 x hidden, or 8/3 x hidden if gated, to a multiple of 64
    heads: 32
    kv_heads: 8           # left out: heads
    head_dim: 128         # left out: hidden / heads
    vocab: 32000
    activation: swiglu    # gelu | gelu_tanh | quick_gelu | relu | relu2 | geglu | geglu_tanh | …
    norm: rmsnorm         # layernorm | rmsnorm
    norm_eps: 1.0e-5
    position: rope        # rope | learned | none
    positions: 2048       # learned only; left out: the workload's sequence length
    rope_theta: 10000     # rope only, as is rotary_dim: the rotated channels of a head
    tie_embeddings: false
    qkv_bias: false       # and out_bias, mlp_bias, qk_norm
    name: mine

Keys left out take the value shown, as an assumption. ``family: gpt2`` sets the
values of GPT-2 (gelu_tanh, layernorm, learned positions, biases, tied embeddings) instead.

Parts that a model has only with their key:

    window: 4096          # sliding window in tokens; full_every: 6 spares each sixth layer
    mask: full            # causal | full; softcap: 50.0; sinks, output_gate: true
    norm_placement: pre   # pre | post | after | sandwich; parallel, shared_norm: true
    logit_softcap: 30.0
    experts: 8            # a mixture in place of the MLP; topk is then required
    topk: 2
    expert_ffn: 1408      # left out: ffn
    shared_experts: 2     # each as wide as an expert; or shared_ffn: all of them; shared_gate
    dense_layers: 3       # first blocks that keep the MLP
    experts_every: 2      # experts in the last of each two blocks
    expert_groups: 8      # and groups_per_token: routing limited to groups
    router: softmax       # softmax | sigmoid; router_bias: true; normalize_weights: false
    gate: topk            # topk | switch | gshard | xmoe, with gate_width | soft, with slots |
                          # expert_choice
    capacity_factor: 1.25 # capacity_order: position | probability
    aux_loss: 0.01        # losses and more that balance experts: z_loss, bias_rate, router_jitter
    kv_rank: 512          # latent attention; with q_rank, nope_dim, rope_dim, value_dim
    mtp: 1                # multi-token layers
    pattern: M-M*ME       # one part a block, layers left out or as many: M state space,
                          # * attention, - MLP, E experts; state_heads, state_head_dim, state_dim,
                          # state_groups, conv_kernel
    image: 224            # patches in place of words; with patch, and classes in place of vocab
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

from ...spec.huggingface.config import ModelAndAssumptions
from ...spec.huggingface.family import decoder, runs_of
from ...spec.model.feed_forward import Activation, FeedForward
from ...spec.model.layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    MultiTokenLayer,
    NormKind,
    PatchLayer,
)
from ...spec.model.mixers import Mask, Mixer
from ...spec.model.model_spec import MAX_LAYERS, LayerRun, ModelSpec, Tower
from ...spec.rules.input_rules import model_problems
from .typed_experts import EXPERT_KEYS, experts, feed_forwards, mlp
from .typed_mixers import ATTENTION_KEYS, STATE_KEYS, mixers, state_space
from .typed_reader import FAMILY_DEFAULTS, ModelKeys

REQUIRED = ("layers", "hidden", "heads", "vocab")
POSITIONS = ("rope", "learned", "none")
Placement = Literal["pre", "post", "after", "sandwich"]
PLACEMENTS = ("pre", "post", "after", "sandwich")
IMAGE_KEYS = ("image", "patch", "classes")
PATTERN_LETTERS = "M*-E"
KNOWN = tuple(
    dict.fromkeys(
        (
            *REQUIRED,
            "ffn",
            *ATTENTION_KEYS,
            *FAMILY_DEFAULTS["llama"],
            *EXPERT_KEYS,
            *STATE_KEYS,
            *IMAGE_KEYS,
            "pattern",
            "positions",
            "norm_placement",
            "parallel",
            "shared_norm",
            "logit_softcap",
            "mtp",
            "family",
            "name",
        )
    )
)


ELSEWHERE = {
    **dict.fromkeys(("n_layer", "n_layers", "num_layers", "num_hidden_layers", "depth"), "layers"),
    **dict.fromkeys(("d_model", "dim", "n_embd", "hidden_dim", "embed_dim", "width"), "hidden"),
    **dict.fromkeys(("n_head", "n_heads", "num_heads", "num_attention_heads"), "heads"),
    **dict.fromkeys(("n_kv_heads", "num_kv_heads", "num_key_value_heads"), "kv_heads"),
    **dict.fromkeys(("d_ff", "d_ffn", "ffn_dim", "n_inner", "intermediate_size"), "ffn"),
    **dict.fromkeys(("vocab_size", "n_vocab", "padded_vocab_size"), "vocab"),
    **dict.fromkeys(("seq_len", "max_seq_len", "n_positions", "block_size"), "positions"),
    **dict.fromkeys(("num_experts", "n_experts", "num_local_experts"), "experts"),
    **dict.fromkeys(("top_k", "num_experts_per_tok", "moe_top_k"), "topk"),
    **dict.fromkeys(("sliding_window", "window_size"), "window"),
    **dict.fromkeys(("tie_word_embeddings", "tied_embeddings", "tie"), "tie_embeddings"),
}
"""Names of keys in other programs."""


def model_from_keys(document: Mapping[str, Any], name: str, where: str) -> ModelAndAssumptions:
    """The model of typed keys, and the assumptions made.

    Args:
        document: the keys of the module docstring.
        name: name of the model if the keys give none.
        where: name of the document in an error.

    Raises:
        InputError: an unknown, missing, unusable or contradictory key.
    """
    keys = ModelKeys(document, where)
    keys.refuse_unknown(KNOWN, ELSEWHERE)
    title = keys.text("name") if keys.has("name") else name
    model = _image_model(keys, title) if keys.has("image") else _text_model(keys, title)
    _require_possible(model, where)
    return model, tuple(keys.assumptions)


def _require_possible(model: ModelSpec, where: str) -> None:
    for problem in model_problems(model):
        raise problem.error(where)


def _text_model(keys: ModelKeys, title: str) -> ModelSpec:
    """A language model over a vocabulary."""
    keys.only_with("image", "patch", "classes")
    keys.only_with("pattern", *STATE_KEYS)
    keys.require(("hidden", "heads", "vocab") if keys.has("pattern") else REQUIRED)
    hidden, vocab = keys.count("hidden"), keys.count("vocab")
    parts = _BlockBuilder(keys, hidden)
    blocks = parts.pattern() if keys.has("pattern") else parts.blocks("causal")
    positions = _positions(keys, parts.position)
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden, positions=positions)
    return decoder(
        title,
        embedding,
        runs_of(blocks),
        norm=None if blocks[-1].norm_placement == "post" else parts.norm,
        norm_eps=parts.eps,
        tied=keys.flag_or_default("tie_embeddings"),
        softcap=keys.number_if("logit_softcap"),
        multi_token=_multi_token_layers(keys, blocks[-1], vocab),
    )


def _image_model(keys: ModelKeys, title: str) -> ModelSpec:
    """An image encoder: patches in, one of ``classes`` out."""
    for key in ("vocab", "mtp", "pattern", "positions", "tie_embeddings", "logit_softcap"):
        if keys.has(key):
            raise keys.error(key, "nothing beside image")
    keys.require(("layers", "hidden", "heads", "patch", "classes"))
    if not keys.has("position"):
        keys.defaults = {**keys.defaults, "position": "learned"}
    hidden = keys.count("hidden")
    parts = _BlockBuilder(keys, hidden)
    patches = PatchLayer(
        hidden=hidden,
        image=keys.count("image"),
        patch=keys.count("patch"),
        positions=parts.position == "learned",
    )
    classifier = ClassifierLayer(
        hidden=hidden, classes=keys.count("classes"), norm=parts.norm, norm_eps=parts.eps
    )
    runs = (LayerRun(layer=patches), *runs_of(parts.blocks("full")), LayerRun(layer=classifier))
    tower = Tower(name="encoder", layers=runs, seq_len=patches.tokens)
    return ModelSpec(name=title, towers=(tower,))


class _BlockBuilder:
    """Builder of a model's blocks.

    Common keys are read once and in one order.
    """

    def __init__(self, keys: ModelKeys, hidden: int) -> None:
        self.keys, self.hidden = keys, hidden
        activation = keys.choice_or_default("activation", get_args(Activation))
        self.activation = cast(Activation, activation)
        self.norm = cast(NormKind, keys.choice_or_default("norm", get_args(NormKind)))
        self.eps = keys.number_or_default("norm_eps")
        self.position = keys.choice_or_default("position", POSITIONS)

    def blocks(self, mask: Mask) -> list[BlockLayer]:
        """Every block with mixer and feed-forward part; ``mask`` if none is given."""
        keys, layers = self.keys, self.keys.count("layers")
        if layers > MAX_LAYERS:
            raise keys.error("layers", f"at most {MAX_LAYERS}", MAX_LAYERS)
        rotary = self.position == "rope"
        attentions = mixers(keys, self.hidden, layers, rotary=rotary, mask=mask)
        mlps = feed_forwards(keys, self.hidden, layers, self.activation)
        return [self._block(a, f) for a, f in zip(attentions, mlps, strict=True)]

    def pattern(self) -> list[BlockLayer]:
        """Blocks of one part each, by the letters of ``pattern``."""
        keys, letters = self.keys, self.keys.text("pattern")
        if set(letters) - set(PATTERN_LETTERS) or len(letters) > MAX_LAYERS:
            allowed = "letters M (state space), * (attention), - (MLP) and E (experts)"
            raise keys.error("pattern", allowed)
        if keys.has("layers") and keys.count("layers") != len(letters):
            raise keys.error("layers", f"{len(letters)}, as many as the pattern", len(letters))
        by_letter = {letter: self._one_part(letter) for letter in dict.fromkeys(letters)}
        return [by_letter[letter] for letter in letters]

    def _one_part(self, letter: str) -> BlockLayer:
        if letter == "M":
            return self._block(state_space(self.keys, self.hidden), None)
        if letter == "*":
            rotary = self.position == "rope"
            (mixer,) = mixers(self.keys, self.hidden, 1, rotary=rotary, mask="causal")
            return self._block(mixer, None)
        if letter == "-":
            return self._block(None, mlp(self.keys, self.hidden, self.activation))
        self.keys.require(("experts", "topk"))
        bias = self.keys.flag_or_default("mlp_bias")
        return self._block(None, experts(self.keys, self.hidden, self.activation, bias))

    def _block(self, mixer: Mixer | None, mlp_part: FeedForward | None) -> BlockLayer:
        placement = self.keys.choice_if("norm_placement", PLACEMENTS)
        return BlockLayer(
            hidden=self.hidden,
            attention=mixer,
            mlp=mlp_part,
            norm=self.norm,
            norm_eps=self.eps,
            norm_placement=cast(Placement, placement),
            parallel=self.keys.flag_if("parallel"),
            shared_norm=self.keys.flag_if("shared_norm"),
        )


def _multi_token_layers(keys: ModelKeys, block: BlockLayer, vocab: int) -> tuple[LayerRun, ...]:
    count = keys.count_if("mtp", 0)
    if not count:
        return ()
    layer = MultiTokenLayer(
        hidden=block.hidden, vocab=vocab, block=block, norm=block.norm, norm_eps=block.norm_eps
    )
    return (LayerRun(layer=layer, count=count),)


def _positions(keys: ModelKeys, position: str) -> int | None:
    if position == "learned":
        if keys.has("positions"):
            return keys.count("positions")
        keys.assume("positions", None, "left out; as many as the workload's sequence has tokens")
        return None
    if keys.has("positions"):
        raise keys.error("positions", "nothing unless position is learned")
    return 0
