"""A cross-entropy that is not fused and not in place: three fp32 tensors as large as the logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import shardwright as sw
from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.datasets.catalogue.stack import stack
from shardwright.executor.tracing.recorder import LiveBytes
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


def unfused(loss_copies: float) -> StackSpec:
    """Torchtitan without compiling its loss."""
    chosen = stack("torchtitan")
    fusion = replace(chosen.fusion, cross_entropy=False)
    return replace(chosen, fusion=fusion, loss_copies=loss_copies)


def test_logarithms_and_two_gradients_stand_beside_each_other_in_fp32() -> None:
    copies = head(unfused(3))
    in_place = head(unfused(0))
    assert copies.forward.change_bytes >= 4 * LOGITS
    fullest = copies.forward.change_bytes + copies.backward.peak_bytes
    assert 3 * 4 * LOGITS <= fullest <= 3.2 * 4 * LOGITS
    assert fullest > in_place.forward.change_bytes + in_place.backward.peak_bytes + 4 * LOGITS


def test_a_fused_loss_has_no_copies() -> None:
    fused = stack("torchtitan")
    one, other = head(fused), head(replace(fused, loss_copies=0))
    assert (one.forward, one.backward) == (other.forward, other.backward)


@pytest.mark.parametrize(
    ("name", "copies"), [("deepspeed", 3.0), ("transformers", 3.0), ("transformers-4.44", 4.0)]
)
def test_modules_of_hugging_face_hold_three_to_four_fp32_copies(name: str, copies: float) -> None:
    """Counted on a step of transformers 5.23: 3.02; 4.02 where outputs are kept in fp32."""
    known = stack(name)
    assert known.loss_copies == copies
    found = head(known)
    fullest = found.forward.change_bytes + found.backward.peak_bytes
    assert copies * 4 * LOGITS <= fullest <= (copies + 0.1) * 4 * LOGITS


def test_a_stack_keeps_any_share_of_the_outputs() -> None:
    halves = [head(unfused(copies)) for copies in (3, 3.5)]
    fullest = [one.forward.change_bytes + one.backward.peak_bytes for one in halves]
    assert fullest[1] - fullest[0] == 2 * LOGITS


@pytest.mark.parametrize("name", ["deepspeed", "transformers"])
def test_lora_of_8b_at_8k_tokens_runs_out_of_24_gb(name: str) -> None:
    """It was said to fit in 16.7 GiB; three fp32 copies of 8192 x 128256 logits are 11.7."""
    found = sw.simulate(
        "llama-3-8b", "1xRTX-4090-24GB", global_batch=1, seq_len=8192, trainable="lora:rank=16",
        recompute="full", stack=name,
    )  # fmt: skip
    row = found.report.prediction.memory[0]
    assert not found.report.prediction.feasible
    assert row.by["workspace"] + row.by["activations"] >= 3 * 4 * 8192 * 128256


@pytest.mark.parametrize(("keeps_outputs", "copies"), [(False, 3), (True, 4)])
def test_torch_makes_as_many(keeps_outputs: bool, copies: int) -> None:
    """The loss of transformers: ``cross_entropy(logits.float(), labels)``, and its backward."""
    tokens, vocab = 64, 4096
    logits = torch.zeros(tokens, vocab, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(tokens, dtype=torch.int64)
    live = LiveBytes([], pauses=False)
    with live:
        outputs = logits.float()
        loss = torch.nn.functional.cross_entropy(outputs, labels)
        if not keeps_outputs:
            del outputs
        loss.backward()
    assert live.peak_bytes == pytest.approx(copies * 4 * tokens * vocab, rel=1e-2)
