"""Weight gradients in a pass of their own: the same sums, nothing held that they do not need."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from shardwright.executor.models.parallel import ALONE, TensorParallel, column_linear, row_linear
from shardwright.executor.models.weight_work import WeightWork, add_gradients

Weights = dict[str, nn.Parameter]


def weights() -> Weights:
    source = torch.Generator().manual_seed(0)
    shapes = {"up": (12, 8), "gate": (12, 8), "up_bias": (12,), "gate_bias": (12,)}
    shapes |= {"down": (8, 12), "down_bias": (8,)}
    return {n: nn.Parameter(torch.randn(s, generator=source)) for n, s in shapes.items()}


def forward(x: Tensor, w: Weights, tp: TensorParallel) -> Tensor:
    """A column-split pair of projections, multiplied, and a row-split one."""
    up, gate = column_linear(x, [w["up"], w["gate"]], [w["up_bias"], w["gate_bias"]], tp)
    return row_linear(up * gate, w["down"], w["down_bias"], tp)


def inputs(count: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(1)
    return [torch.randn(3, 2, 8, generator=source).requires_grad_() for _ in range(count)]


def test_two_parts_give_the_gradients_of_one_whatever_comes_between() -> None:
    whole, split = weights(), weights()
    later = WeightWork()
    apart = replace(ALONE, later=later)
    for number, (x, y) in enumerate(zip(inputs(3), inputs(3), strict=True)):
        forward(x, whole, ALONE).square().sum().backward()
        loss = forward(y, split, apart).square().sum()
        with later.put_off(number):
            loss.backward()
        assert x.grad is not None
        assert y.grad is not None
        assert torch.equal(x.grad, y.grad)
        if number == 0:
            assert split["down_bias"].grad is not None  # comes with the input's gradient
            assert split["up"].grad is split["up_bias"].grad is split["down"].grad is None
    for number in range(3):
        later.run(number)
    for name, parameter in whole.items():
        assert parameter.grad is not None
        torch.testing.assert_close(split[name].grad, parameter.grad, rtol=0, atol=0)


def test_a_whole_backward_leaves_nothing_for_later() -> None:
    later, w = WeightWork(), weights()
    (x,) = inputs(1)
    forward(x, w, replace(ALONE, later=later)).sum().backward()
    assert not later.waits
    assert all(p.grad is not None for p in w.values())
    with pytest.raises(KeyError):
        later.run(0)


def test_what_waits_holds_no_graph_and_lets_go_one_by_one() -> None:
    later, w = WeightWork(), weights()
    (x,) = inputs(1)
    entry = x * 1  # as of a layer before
    seen = weakref.ref(entry)
    out = forward(entry + 1, w, replace(ALONE, later=later))
    with later.put_off(0):
        out.sum().backward()
    del entry, out
    gc.collect()
    assert seen() is None
    held = [c.cell_contents for product in later._waiting[0] for c in product.__closure__ or ()]
    tensors = [t for t in held if isinstance(t, Tensor) and not isinstance(t, nn.Parameter)]
    assert len(tensors) == 3  # the joined input; the last product's gradient and input
    assert all(t.grad_fn is None for t in tensors)
    later.run(0)
    assert all(p.grad is not None for p in w.values())


def test_products_wait_only_for_a_split_backward() -> None:
    with pytest.raises(RuntimeError, match="split"):
        WeightWork().add(lambda: None)


def test_a_first_gradient_is_kept_and_the_next_is_added_in_place() -> None:
    parameter, first = nn.Parameter(torch.zeros(2)), torch.ones(2)
    with torch.no_grad():
        add_gradients([parameter], [first])
        add_gradients([parameter], [torch.ones(2)])
    assert parameter.grad is first
    assert first.tolist() == [2.0, 2.0]
