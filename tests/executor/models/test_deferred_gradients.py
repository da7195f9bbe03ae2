"""Weight gradients in a pass of their own: the same sums, nothing held that they do not need."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from shardwright.executor.models.block import Block
from shardwright.executor.models.deferred_gradients import DeferredGradients, add_gradients
from shardwright.executor.models.layer import LayerBuild
from shardwright.executor.models.moe.mixture import mixture
from shardwright.executor.models.sequence_split import SequenceSplit
from shardwright.executor.models.tensor_parallel import (
    NO_TENSOR_PARALLEL,
    TensorParallel,
    column_linear,
    row_linear,
)
from shardwright.executor.models.token_layout import token_layout
from shardwright.kernels.dispatch import Dispatcher
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import Attention
from shardwright.spec.strategy import LayerStrategy

Weights = dict[str, nn.Parameter]


def weights() -> Weights:
    source = torch.Generator().manual_seed(0)
    shapes = {"up": (12, 8), "gate": (12, 8), "up_bias": (12,), "gate_bias": (12,)}
    shapes |= {"down": (8, 12), "down_bias": (8,)}
    return {n: nn.Parameter(torch.randn(s, generator=source)) for n, s in shapes.items()}


def forward(x: Tensor, w: Weights, tp: TensorParallel) -> Tensor:
    """A column-split pair of projections, multiplied, and a row-split one."""
    up, gate = column_linear(x, [w["up"], w["gate"]], [w["up_bias"], w["gate_bias"]], tp)
    return row_linear([up * gate], [w["down"]], [w["down_bias"]], tp)


def inputs(count: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(1)
    return [torch.randn(3, 2, 8, generator=source).requires_grad_() for _ in range(count)]


def test_two_parts_give_the_gradients_of_one_whatever_comes_between() -> None:
    whole, split = weights(), weights()
    deferred = DeferredGradients()
    apart = replace(NO_TENSOR_PARALLEL, deferred=deferred)
    for number, (x, y) in enumerate(zip(inputs(3), inputs(3), strict=True)):
        forward(x, whole, NO_TENSOR_PARALLEL).square().sum().backward()
        loss = forward(y, split, apart).square().sum()
        with deferred.defer(number):
            loss.backward()
        assert x.grad is not None
        assert y.grad is not None
        assert torch.equal(x.grad, y.grad)
        if number == 0:
            assert split["down_bias"].grad is not None  # comes with the input's gradient
            assert split["up"].grad is split["up_bias"].grad is split["down"].grad is None
    for number in range(3):
        deferred.run(number)
    for name, parameter in whole.items():
        assert parameter.grad is not None
        torch.testing.assert_close(split[name].grad, parameter.grad, rtol=0, atol=0)


def mixture_of(deferred: DeferredGradients | None) -> Block:
    """A block whose experts, shared expert and gate have weights; one rank."""
    spec = Moe(experts=4, topk=2, ffn=12, shared_ffn=12, shared_gate=True, router_bias=True)
    layer = BlockLayer(hidden=8, attention=Attention(heads=1, kv_heads=1, head_dim=8), mlp=spec)
    build = LayerBuild(
        tp=replace(NO_TENSOR_PARALLEL, deferred=deferred),
        kernels=Dispatcher(),
        recompute="none",
        flash=True,
        seq_len=3,
        sequence=SequenceSplit(token_layout(LayerStrategy(), 0, 3)),
    )
    block, source = Block(layer, build), torch.Generator().manual_seed(2)
    for own in layer_parameters(layer):
        name, _, kind = own.name.rpartition(".")
        if name == "router" or name.startswith(("experts_", "shared_")):
            value = torch.randn(own.shape, generator=source)
            value = value.flatten(0, 1) if own.expert else value
            block.slot(name).register_parameter(kind, nn.Parameter(value))
    return block


def test_weight_gradients_of_a_mixture_wait_all_of_them() -> None:
    deferred = DeferredGradients()
    whole, split = mixture_of(None), mixture_of(deferred)
    spec = whole.mlp
    assert isinstance(spec, Moe)
    for number, (x, y) in enumerate(zip(inputs(2), inputs(2), strict=True)):
        mixture(whole, spec, x).square().sum().backward()
        loss = mixture(split, spec, y).square().sum()
        with deferred.defer(number):
            loss.backward()
        assert x.grad is not None
        assert y.grad is not None
        assert torch.equal(x.grad, y.grad)
    assert all(p.grad is None for p in split.parameters())
    for number in range(2):
        deferred.run(number)
    found = dict(split.named_parameters())
    assert len(found) == 9
    for name, parameter in whole.named_parameters():
        torch.testing.assert_close(found[name].grad, parameter.grad, rtol=0, atol=0)


def test_a_whole_backward_leaves_nothing_for_later() -> None:
    deferred, w = DeferredGradients(), weights()
    (x,) = inputs(1)
    forward(x, w, replace(NO_TENSOR_PARALLEL, deferred=deferred)).sum().backward()
    assert not deferred.is_deferring
    assert all(p.grad is not None for p in w.values())
    with pytest.raises(KeyError):
        deferred.run(0)


def test_what_waits_holds_no_graph_and_lets_go_one_by_one() -> None:
    deferred, w = DeferredGradients(), weights()
    (x,) = inputs(1)
    entry = x * 1  # as of a layer before
    seen = weakref.ref(entry)
    out = forward(entry + 1, w, replace(NO_TENSOR_PARALLEL, deferred=deferred))
    with deferred.defer(0):
        out.sum().backward()
    del entry, out
    gc.collect()
    assert seen() is None
    held = [c.cell_contents for product in deferred._waiting[0] for c in product.__closure__ or ()]
    single = [t for one in held for t in (one if isinstance(one, list) else [one])]
    tensors = [t for t in single if isinstance(t, Tensor) and not isinstance(t, nn.Parameter)]
    assert len(tensors) == 5  # the joined input and its gradients; the last product's two
    assert all(t.grad_fn is None for t in tensors)
    deferred.run(0)
    assert all(p.grad is not None for p in w.values())


def test_products_wait_only_for_a_split_backward() -> None:
    with pytest.raises(RuntimeError, match="split"):
        DeferredGradients().add(lambda: None)


def test_a_first_gradient_is_kept_and_the_next_is_added_in_place() -> None:
    parameter, first = nn.Parameter(torch.zeros(2)), torch.ones(2)
    with torch.no_grad():
        add_gradients([parameter], [first])
        add_gradients([parameter], [torch.ones(2)])
    assert parameter.grad is first
    assert first.tolist() == [2.0, 2.0]
