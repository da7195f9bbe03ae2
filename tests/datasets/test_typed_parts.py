"""Typed keys of parts that most models lack: experts, latent attention, patterns, images."""

from __future__ import annotations

from typing import Any

import pytest

from shardwright.datasets.models.typed_model import KNOWN, __doc__, model_from_keys
from shardwright.spec.errors import InputError
from shardwright.spec.model.model_spec import (
    Attention,
    BlockLayer,
    HeadLayer,
    LatentAttention,
    Mlp,
    ModelSpec,
    Moe,
    MultiTokenLayer,
    PatchLayer,
    StateSpace,
)

SIZES = {"layers": 6, "hidden": 64, "heads": 4, "vocab": 100, "ffn": 96}
EXPERTS = {**SIZES, "experts": 8, "topk": 2}
LATENT = {"kv_rank": 16, "nope_dim": 8, "rope_dim": 4, "value_dim": 12}
IMAGE = {"layers": 2, "hidden": 64, "heads": 4, "image": 28, "patch": 7, "classes": 10}


def model(keys: dict[str, Any]) -> ModelSpec:
    return model_from_keys(keys, "m", "m.yaml")[0]


def blocks(keys: dict[str, Any]) -> list[BlockLayer]:
    return [layer for layer in model(keys).layers() if isinstance(layer, BlockLayer)]


def test_every_key_is_documented() -> None:
    assert [key for key in KNOWN if key not in str(__doc__)] == []


def test_an_unknown_key_is_told_every_key() -> None:
    with pytest.raises(InputError) as caught:
        model({**SIZES, "hiden": 3})
    line = str(caught.value)
    assert "got hiden" in line
    assert all(f" {key}," in line or f" {key};" in line for key in KNOWN)
    assert line.endswith("; nearest: hidden")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("key", "meant"),
    [("n_layers", "layers"), ("d_model", "hidden"), ("num_heads", "heads"), ("d_ff", "ffn"),
     ("n_kv_heads", "kv_heads"), ("vocab_size", "vocab"), ("max_seq_len", "positions"),
     ("top_k", "topk"), ("tie_word_embeddings", "tie_embeddings")],
)  # fmt: skip
def test_names_of_other_programs_are_known(key: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        model({**SIZES, key: 3})
    assert caught.value.nearest == meant


def test_every_missing_key_is_named_at_once() -> None:
    said = "hidden, vocab: got nothing; allowed: values for layers, hidden, heads, vocab"
    with pytest.raises(InputError, match=said):
        model({"layers": 2, "heads": 4})


def test_experts_take_the_place_of_the_mlp() -> None:
    keys = {**EXPERTS, "expert_ffn": 24, "shared_experts": 2, "router": "sigmoid",
            "expert_groups": 4, "groups_per_token": 2, "capacity_factor": 1.5,
            "router_bias": True, "shared_gate": True}  # fmt: skip
    (moe,) = {block.mlp for block in blocks(keys)}
    assert moe == Moe(
        experts=8, topk=2, ffn=24, shared_ffn=48, score="sigmoid", groups=4, groups_per_token=2,
        capacity_factor=1.5, router_bias=True, shared_gate=True,
    )  # fmt: skip
    assert blocks({**EXPERTS, "shared_ffn": 7})[0].mlp == Moe(
        experts=8, topk=2, ffn=96, shared_ffn=7
    )


@pytest.mark.parametrize(
    ("extra", "sparse"),
    [({}, "EEEEEE"), ({"dense_layers": 2}, "--EEEE"), ({"experts_every": 2}, "-E-E-E"),
     ({"dense_layers": 1, "experts_every": 2}, "--E-E-")],
)  # fmt: skip
def test_some_layers_keep_the_mlp(extra: dict[str, int], sparse: str) -> None:
    found = blocks({**EXPERTS, **extra})
    assert "".join("E" if isinstance(b.mlp, Moe) else "-" for b in found) == sparse
    assert all(b.mlp == Mlp(ffn=96) for b in found if not isinstance(b.mlp, Moe))


def test_active_parameters_leave_out_idle_experts() -> None:
    found = model(EXPERTS)
    idle = 6 * (8 - 2) * 3 * 64 * 96
    assert found.param_count() - found.active_param_count() == idle
    assert model(SIZES).active_param_count() == model(SIZES).param_count()


def test_latent_attention() -> None:
    (mixer,) = {block.attention for block in blocks({**SIZES, **LATENT, "q_rank": 20})}
    assert mixer == LatentAttention(
        heads=4, query_rank=20, kv_rank=16, nope_dim=8, rope_dim=4, value_dim=12
    )


def test_windows_on_all_layers_but_each_third() -> None:
    found = blocks({**SIZES, "window": 8, "full_every": 3, "sinks": True, "softcap": 30.0})
    mixers = [b.attention for b in found if isinstance(b.attention, Attention)]
    assert [m.window for m in mixers] == [8, 8, None, 8, 8, None]
    assert all(m.sinks and m.softcap == 30.0 for m in mixers)


def test_a_pattern_gives_each_block_one_part() -> None:
    keys = {**EXPERTS, "pattern": "M-*EM-", "state_heads": 4, "state_head_dim": 16}
    found = blocks(keys)
    kinds = [type(b.attention or b.mlp) for b in found]
    assert kinds == [StateSpace, Mlp, Attention, Moe, StateSpace, Mlp]
    assert all(b.attention is None or b.mlp is None for b in found)
    without = {key: value for key, value in keys.items() if key != "layers"}
    assert blocks(without) == found


def test_further_tokens_and_norms() -> None:
    found = model({**EXPERTS, "mtp": 2, "norm_placement": "sandwich", "logit_softcap": 20.0})
    *_, block, first, second, head = found.layers()
    assert isinstance(first, MultiTokenLayer)
    assert first == second
    assert first.block == block
    assert isinstance(head, HeadLayer)
    assert head.softcap == 20.0
    post = model({**SIZES, "norm_placement": "post"}).layers()[-1]
    assert isinstance(post, HeadLayer)
    assert post.norm is None


def test_an_image_encoder() -> None:
    found = model({**IMAGE, "family": "gpt2", "parallel": True, "qk_norm": True})
    patches, block, _, _ = found.layers()
    assert isinstance(patches, PatchLayer)
    assert found.towers[0].seq_len == patches.tokens == 17
    assert isinstance(block, BlockLayer)
    assert isinstance(block.attention, Attention)
    assert (block.attention.mask, block.attention.rotary, block.parallel) == ("full", False, True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({**SIZES, "topk": 2}, "topk: got 2; allowed: nothing unless experts is given"),
        ({**SIZES, "experts": 8}, "topk: got nothing"),
        ({**EXPERTS, "topk": 9}, "topk: got 9; allowed: at most the 8 experts"),
        ({**EXPERTS, "expert_groups": 3}, "groups: got 3"),
        ({**EXPERTS, "shared_ffn": 8, "shared_experts": 1}, "nothing beside shared_ffn"),
        ({**SIZES, "rope_dim": 4}, "rope_dim: got 4; allowed: nothing unless kv_rank"),
        ({**SIZES, "kv_rank": 16}, "nope_dim, rope_dim, value_dim: got nothing"),
        ({**SIZES, **LATENT, "kv_heads": 2}, "kv_heads: got 2; allowed: nothing beside kv_rank"),
        ({**SIZES, **LATENT, "position": "none"}, "rope beside kv_rank"),
        ({**SIZES, "full_every": 2}, "nothing unless window is given"),
        ({**SIZES, "rotary_dim": 5}, "rotary_dim: got 5; allowed: an even number"),
        ({**SIZES, "pattern": "MXM"}, "letters M"),
        ({**SIZES, "pattern": "M*"}, 'layers: got 6; allowed: 2, as many as the pattern'),
        ({**SIZES, "pattern": "M*E---"}, "experts, topk: got nothing"),
        ({**SIZES, "state_dim": 4}, "nothing unless pattern is given"),
        ({**SIZES, "patch": 4}, "nothing unless image is given"),
        ({**IMAGE, "vocab": 100}, "vocab: got 100; allowed: nothing beside image"),
        ({**IMAGE, "patch": 5}, "patch: got 5; allowed: a divisor of the image 28"),
        ({**SIZES, "layers": 70000}, "layers: got 70000; allowed: at most 16384"),
    ],
)  # fmt: skip
def test_contradictions_are_one_line(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        model(keys)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
