"""A cross-entropy that is not fused and not in place: three fp32 tensors as large as the logits."""

from __future__ import annotations

from dataclasses import replace

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.model_spec import HeadLayer
from shardwright.spec.strategy import LayerStrategy

TOKENS, VOCAB = 4096, 32000
LOGITS = TOKENS * VOCAB


def head(chosen: StackSpec) -> LoweredLayer:
    """The head of a model in bf16 on one rank."""
    shape = LayerShape(
        strategy=LayerStrategy(),
        before=None,
        batch=1,
        seq_len=TOKENS,
        dtype="bf16",
        stack=chosen,
    )
    return lower_layer(HeadLayer(vocab=VOCAB, hidden=256, norm="rmsnorm"), shape)


def unfused(loss_copies: bool) -> StackSpec:
    """Torchtitan without compiling its loss."""
    chosen = stack("torchtitan")
    fusion = replace(chosen.fusion, cross_entropy=False)
    return replace(chosen, fusion=fusion, loss_copies=loss_copies)


def test_logarithms_and_two_gradients_stand_beside_each_other_in_fp32() -> None:
    copies = head(unfused(True))
    in_place = head(unfused(False))
    assert copies.forward.change_bytes >= 4 * LOGITS
    fullest = copies.forward.change_bytes + copies.backward.peak_bytes
    assert 3 * 4 * LOGITS <= fullest <= 3.2 * 4 * LOGITS
    assert fullest > in_place.forward.change_bytes + in_place.backward.peak_bytes + 4 * LOGITS


def test_a_fused_loss_has_no_copies() -> None:
    fused = stack("torchtitan")
    one, other = head(fused), head(replace(fused, loss_copies=False))
    assert (one.forward, one.backward) == (other.forward, other.backward)
