"""Backwards in two parts: together they are the whole, and what waits for weights is real."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from generators.plan_cases import GPT2, LLAMA, Sizes

from shardwright.costmodel.lowering.layer_lowering import LayerShape, lower_layer
from shardwright.costmodel.pricing.costs import NO_SERIAL
from shardwright.costmodel.simulation.overlapped_passes import pair_time
from shardwright.costmodel.simulation.pass_time import PASS_TERMS, PassTime
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.model.model_spec import BlockLayer, Layer
from shardwright.spec.report.work_items import Kernel
from shardwright.spec.strategy import LayerStrategy

WIDE = Sizes(hidden=64, heads=4, kv_heads=4, ffn=256)
SPLITS = [
    LayerStrategy(),
    LayerStrategy(tp=2),
    LayerStrategy(tp=2, sequence_parallel="megatron"),
    LayerStrategy(recompute="selective"),
    LayerStrategy(recompute="full"),
]


def shapes() -> list[tuple[Layer, LayerShape]]:
    return [
        (layer, LayerShape(split, None, 2, 32, "bf16", stack(name, on_cores=True)))
        for name in ("shardwright", "megatron")
        for split in SPLITS
        for sizes in (LLAMA, GPT2, WIDE)
        for layer in sizes.model().kinds()
        if split.recompute == "none" or isinstance(layer, BlockLayer)
    ]


@pytest.mark.parametrize(("layer", "shape"), shapes())
def test_two_parts_are_the_whole_backward(layer: Layer, shape: LayerShape) -> None:
    lowered = lower_layer(layer, shape)
    split = lowered.split_backward()
    for whole, first, second in (
        (lowered.backward, split.input, split.weight),
        (lowered.accumulating_backward, split.accumulating_input, split.accumulating_weight),
    ):
        assert Counter(first.entries) + Counter(second.entries) == Counter(whole.entries)
        assert first.change_bytes + second.change_bytes == whole.change_bytes
        assert first.gradient_bytes + second.gradient_bytes == whole.gradient_bytes
        assert second.collectives() == []
        assert not any(entry.recomputed for entry in second.entries)
        assert {k.term for k in second.kernels()} <= {"matmul", "elementwise"}


def test_weight_gradients_are_a_third_of_the_products() -> None:
    """Every linear layer has three products of one size: forward, input, weight."""
    for layer, shape in shapes():
        lowered = lower_layer(layer, shape)
        weights = sum(k.flops for k in lowered.split_backward().weight.kernels())
        linear = sum(k.flops for k in lowered.forward.kernels() if k.op == "matmul")
        assert weights == linear


def test_inputs_and_output_gradients_of_linear_layers_wait() -> None:
    """M_W of a block is 32 s·b·h bytes (Qi et al., 2024, section 2.3).

    Inputs of h, h, h and 4h and gradients of 3h, h, 4h and h, of 2 bytes each.
    """
    block = next(x for x in replace(WIDE, gpt2=True).model().kinds() if isinstance(x, BlockLayer))
    shape = LayerShape(LayerStrategy(), None, 1, 32, "bf16", stack("megatron"))
    lowered = lower_layer(block, shape)
    hidden_bytes = 2 * 32 * 64
    freed = -lowered.split_backward().weight.change_bytes
    assert freed == 16 * hidden_bytes


def passes(compute_s: float, tp_s: float, dp_s: float = 0.0, serial: bool = True) -> PassTime:
    terms = dict.fromkeys(PASS_TERMS, 0.0) | {
        "matmul": compute_s, "exposed_tp": tp_s, "exposed_dp": dp_s
    }  # fmt: skip
    serial_s = (tp_s, 0.0, 0.0) if serial else NO_SERIAL
    time_s = compute_s + tp_s + dp_s
    return PassTime(time_s, list(terms.values()), compute_s, 0.0, serial_s=serial_s)


def test_a_pair_hides_the_communication_of_one_behind_the_work_of_the_other() -> None:
    assert pair_time(passes(3, 1), passes(5, 2), 1.0).time_s == 8  # work of both
    assert pair_time(passes(1, 4), passes(1, 5), 1.0).time_s == 9  # wires of both
    assert pair_time(passes(1, 6), passes(1, 0), 1.0).time_s == 7  # one of them alone
    assert pair_time(passes(3, 0), passes(5, 0), 1.0).time_s == 8
    assert pair_time(passes(3, 0, 2), passes(5, 0, 1), 1.0).time_s == 11
    hidden = pair_time(passes(3, 1), passes(5, 2), 1.1)
    assert hidden.time_s == pytest.approx(8 + 0.1 * 3)
    assert pair_time(passes(3, 1), passes(5, 2), 2.0).time_s == 11
    for pair in (hidden, pair_time(passes(1, 6), passes(1, 0.5, 1), 1.3)):
        assert sum(pair.terms_s) == pytest.approx(pair.time_s)
        assert min(pair.terms_s) >= 0


def test_what_a_stack_hides_inside_passes_is_not_hidden_twice() -> None:
    beside = passes(3, 1, serial=False), passes(5, 2, serial=False)
    assert pair_time(*beside, 1.0).time_s == 11
    assert pair_time(passes(3, 1), passes(5, 2), 1.0, hides=False).time_s == 11


@pytest.mark.parametrize("slowdown", [1.0, 1.1256, 1.7, 2.0])
def test_a_pair_never_gets_shorter_when_a_duration_grows(slowdown: float) -> None:
    sizes = (0.0, 0.5, 2.0, 7.0)
    for one in ((a, b) for a in sizes for b in sizes):
        for other in ((a, b) for a in sizes for b in sizes):
            time_s = pair_time(passes(*one), passes(*other), slowdown).time_s
            in_turn_s = sum(one) + sum(other)
            assert max(sum(one), sum(other)) <= time_s <= in_turn_s + 1e-12
            for more in (0.25, 3.0):
                for longer in ((one[0] + more, one[1]), (one[0], one[1] + more)):
                    again = pair_time(passes(*longer), passes(*other), slowdown)
                    assert again.time_s >= time_s - 1e-12


def test_kernels_of_weights_are_products_or_sums_of_parameters_size() -> None:
    block = next(x for x in WIDE.model().kinds() if isinstance(x, BlockLayer))
    shape = LayerShape(LayerStrategy(), None, 1, 32, "bf16", stack("shardwright"))
    split = lower_layer(block, shape).split_backward()
    assert all(isinstance(e.work, Kernel) for e in split.weight.entries)
    assert {k.op for k in split.weight.kernels()} == {"matmul"}
    assert {k.op for k in split.accumulating_weight.kernels()} == {"matmul", "add"}
