"""Our stack on accelerators: fused kernels are lowered as what they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.datasets.catalogue.stack import stack, stack_sources
from shardwright.spec.model.feed_forward import Mlp
from shardwright.spec.model.layers import BlockLayer, HeadLayer
from shardwright.spec.model.mixers import Attention
from shardwright.spec.report.work_items import loss_chunks
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.training import LayerTraining

HEAD = HeadLayer(hidden=2048, vocab=128_256)
BLOCK = BlockLayer(
    hidden=256,
    attention=Attention(heads=8, kv_heads=2, head_dim=32, qk_norm=True),
    mlp=Mlp(ffn=512),
)
FUSED, EAGER = stack("shardwright"), stack("shardwright", on_cores=True)
TOKENS = 8192


def lowered(layer: BlockLayer | HeadLayer, used: object, **fields: object) -> LoweredLayer:
    given: dict[str, object] = {"strategy": LayerStrategy(), "seq_len": TOKENS, **fields}
    shape = LayerShape(given.pop("strategy"), None, 1, given.pop("seq_len"), "bf16", used)  # type: ignore[arg-type]
    return lower_layer(layer, replace(shape, **given))  # type: ignore[arg-type]


def ops(found: LoweredLayer) -> list[str]:
    return [k.op for way in (found.forward, found.backward) for k in way.kernels()]


def test_the_loss_goes_in_chunks_and_leaves_its_gradients() -> None:
    fused, eager = lowered(HEAD, FUSED), lowered(HEAD, EAGER)
    chunks = loss_chunks(TOKENS, HEAD.vocab)
    assert ops(fused).count("cross_entropy") == len(chunks) == 4
    assert fused.backward.flops == 0
    assert fused.forward.flops == eager.forward.flops + eager.backward.flops
    written = sum(k.traffic_bytes for k in fused.forward.kernels() if k.op == "cross_entropy")
    logits = TOKENS * HEAD.vocab * 2
    assert written == pytest.approx(2 * logits, rel=1e-3)


def test_a_chunk_of_logits_is_all_that_lives() -> None:
    fused, eager = (
        max(x.forward.peak_bytes, x.forward.change_bytes + x.backward.peak_bytes)
        for x in (lowered(HEAD, FUSED), lowered(HEAD, EAGER))
    )
    weight, logits = (
        HEAD.vocab * HEAD.hidden * 2,
        loss_chunks(TOKENS, HEAD.vocab)[0] * HEAD.vocab * 2,
    )
    assert fused == pytest.approx(weight + logits + 2 * TOKENS * HEAD.hidden * 2, rel=0.1)
    assert fused <= 0.25 * eager


@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": LayerStrategy(tp=2)},
        {"training": LayerTraining(weights=False)},
    ],
    ids=["split vocabulary", "frozen"],
)
def test_elsewhere_the_loss_stands_apart(fields: dict[str, object]) -> None:
    found = lowered(HEAD, FUSED, **fields)
    assert "cross_entropy" not in ops(found)
    assert found.backward.flops > 0


def test_a_split_vocabularys_loss_goes_in_chunks_where_logits_are_many() -> None:
    """32,000 words over tp 8: whole until 2^30 logits a rank, whatever fuses."""
    head = HeadLayer(hidden=4096, vocab=32_000)
    split = LayerStrategy(tp=8, sequence_parallel="megatron")
    for used in (FUSED, EAGER):
        short, long = (
            lowered(head, used, strategy=split, seq_len=tokens) for tokens in (2**18, 2**20)
        )
        assert short.backward.flops > 0 == long.backward.flops
        assert sum(x.flops for x in (long.forward, long.backward)) == pytest.approx(
            4 * sum(x.flops for x in (short.forward, short.backward))
        )
        chunks = len(loss_chunks(2**20, 4000))
        reduced = [c for c in long.forward.collectives() if c.kind == "all_reduce"]
        assert len(reduced) == 2 * chunks == 32
        gathered, whole = 2**20 * 4096 * 2, 4 * short.forward.peak_bytes
        assert 2 * gathered < long.forward.peak_bytes < 0.8 * whole
    megatron = lowered(head, stack("megatron"), strategy=split, seq_len=2**20)
    assert megatron.backward.flops > 0


def test_a_capped_head_is_not_chunked() -> None:
    assert "tanh" in ops(lowered(replace(HEAD, softcap=30.0), FUSED))


def test_a_fused_block_names_each_kernel_once_a_way() -> None:
    found = ops(lowered(BLOCK, FUSED, seq_len=64))
    for op, count in {
        "rms_norm": 4,  # two of the block, one each of queries and keys
        "rms_norm_backward": 4,
        "rope": 2,
        "swiglu": 1,
        "swiglu_backward": 1,
    }.items():
        assert found.count(op) == count, op
    assert not {"silu", "addcmul", "row_norm", "rsqrt"} & set(found)


def test_what_is_fused_moves_fewer_bytes_and_keeps_no_more() -> None:
    fused, eager = lowered(BLOCK, FUSED), lowered(BLOCK, EAGER)
    moved = [
        sum(k.traffic_bytes for way in (x.forward, x.backward) for k in way.kernels())
        for x in (fused, eager)
    ]
    assert moved[0] < 0.8 * moved[1]
    assert fused.forward.flops == eager.forward.flops
    assert fused.forward.change_bytes <= eager.forward.change_bytes
    assert fused.backward.peak_bytes < eager.backward.peak_bytes


def test_a_stack_on_cores_differs_in_what_it_says_of_them_alone() -> None:
    apart = {
        name for name in FUSED.__dataclass_fields__ if getattr(FUSED, name) != getattr(EAGER, name)
    }
    assert apart == {"fusion", "attention_gradient_copies", "packed_attention"}
    assert stack("megatron", on_cores=True) == stack("megatron")
    own, cores = stack_sources("shardwright"), stack_sources("shardwright", on_cores=True)
    assert own.keys() == cores.keys()
    assert "eager" in cores["fusion.norm"]
    assert "liger" in own["fusion.norm"]
