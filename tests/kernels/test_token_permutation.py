"""Tokens to experts and back: fused and portable kernels against the definition in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_doubles.kernel_devices import (
    DEVICES,
    DTYPES,
    LAYOUTS,
    dispatchers,
    random_values,
    strided,
)
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.moe.expert_order import ExpertOrder, expert_order
from shardwright.kernels.moe.token_permutation import (
    permute,
    permute_reference,
    unpermute,
    unpermute_reference,
)
from shardwright.spec.errors import InputError

PORTABLE = Dispatcher("portable")
FLOATS = (*DTYPES, torch.float64)
TOLERANCE = {
    torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3,
}  # fmt: skip


@st.composite
def orders(draw: st.DrawFn) -> tuple[Tensor, int, int | None]:
    """Choices of few tokens, some dropped, the number of experts and, at times, a capacity."""
    tokens, topk = draw(st.integers(0, 9)), draw(st.integers(1, 3))
    experts = draw(st.integers(1, 5))
    least = draw(st.sampled_from([-1, 0]))
    chosen = draw(
        st.lists(st.integers(least, experts - 1), min_size=tokens * topk, max_size=tokens * topk)
    )
    capacity = draw(st.one_of(st.none(), st.integers(1, 8)))
    return torch.tensor(chosen, dtype=torch.int64).view(tokens, topk), experts, capacity


@settings(max_examples=100)
@given(orders())
def test_the_order_is_by_expert_then_by_token(case: tuple[Tensor, int, int | None]) -> None:
    chosen, experts, capacity = case
    found = expert_order(chosen, experts, capacity)
    flat = chosen.flatten().tolist()
    of_expert = [[a for a, e in enumerate(flat) if e == expert] for expert in range(experts)]
    if capacity is None:
        rows = [a for those in of_expert for a in those]
        rows += [-1] * (len(flat) - len(rows))
    else:
        of_expert = [those[:capacity] for those in of_expert]
        rows = [a for those in of_expert for a in [*those, *[-1] * (capacity - len(those))]]
    assert found.order.tolist() == rows
    assert found.counts.tolist() == [len(those) for those in of_expert]
    slots = [rows.index(a) if a in rows else -1 for a in range(len(flat))]
    assert found.slots.shape == chosen.shape
    assert found.slots.flatten().tolist() == slots


def gradients(out: Tensor, grad: Tensor, *leaves: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(out, leaves, grad.to(out.dtype))
    return [out.detach(), *found]


def assert_near(found: list[Tensor], expected: list[Tensor], dtype: torch.dtype) -> None:
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape
        largest = float(b.abs().max()) if b.numel() else 0.0
        off = float((a.double() - b).abs().max()) if b.numel() else 0.0
        assert off <= TOLERANCE[dtype] * max(largest, 1e-3), (number, off, largest)


@DEVICES
@settings(max_examples=25)
@given(
    case=orders(),
    width=st.integers(1, 70),
    dtype=st.sampled_from(FLOATS),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 2),
    weights_dtype=st.sampled_from([torch.float32, torch.bfloat16, None]),
)
def test_both_ways_equal_the_definition(
    device: str,
    case: tuple[Tensor, int, int | None],
    width: int,
    dtype: torch.dtype,
    layouts: tuple[str, str],
    weights_dtype: torch.dtype | None,
) -> None:
    chosen, experts, capacity = case
    order = expert_order(chosen.to(device), experts, capacity)
    rows_count, (tokens, topk) = order.order.shape[0], chosen.shape
    drawn = [
        random_values(n, width, seed=n, dtype=dtype, device=device) for n in (tokens, rows_count)
    ]
    x, rows = (strided(t, how).requires_grad_() for t, how in zip(drawn, layouts, strict=True))
    weights = None
    if weights_dtype is not None:
        weights = random_values(tokens, topk, seed=7, dtype=weights_dtype, device=device)
        weights.requires_grad_()
    leaves = [rows] if weights is None else [rows, weights]
    grad_rows = strided(random_values(rows_count, width, seed=3, device=device), layouts[1])
    grad = strided(random_values(tokens, width, seed=4, device=device), layouts[0])
    grad_rows, grad = grad_rows.to(dtype), grad.to(dtype)
    expected = gradients(permute_reference(x, order), grad_rows, x)
    expected_sum = gradients(unpermute_reference(rows, order, weights), grad, *leaves)
    loose = dtype if weights_dtype is None or dtype == torch.float16 else weights_dtype
    coarsest = max((dtype, loose), key=TOLERANCE.__getitem__)
    for kernels in dispatchers(device):
        found = gradients(permute(kernels, x, order), grad_rows, x)
        assert torch.equal(found[0].double(), expected[0].detach())
        assert_near(found, expected, dtype)
        sums = gradients(unpermute(kernels, rows, order, weights), grad, *leaves)
        assert_near(sums, expected_sum, coarsest)
        assert [t.dtype for t in sums[1:]] == [leaf.dtype for leaf in leaves]


@DEVICES
@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float8_e4m3fn], ids=str
)
def test_any_type_is_permuted(device: str, dtype: torch.dtype) -> None:
    x = random_values(5, 7, device=device).mul(3).to(dtype)
    order = expert_order(torch.tensor([[0, 1], [1, -1], [0, 0], [2, 1], [2, 2]], device=device), 3)
    expected = permute_reference(x.to(torch.float64), order)
    for kernels in dispatchers(device):
        assert torch.equal(permute(kernels, x, order).to(torch.float64), expected)


@DEVICES
def test_long_rows_and_gradients_that_repeat(device: str) -> None:
    """Rows of more than one program, and gradients of stride 0, as those of a plain sum are."""
    order = expert_order(torch.tensor([[1, 0], [-1, 1], [0, 1]], device=device), 2, 2)
    rows, weights = random_values(4, 5001, device=device), random_values(3, 2, device=device)
    rows.requires_grad_(), weights.requires_grad_()
    expected = torch.autograd.grad(unpermute_reference(rows, order, weights).sum(), (rows, weights))
    for kernels in dispatchers(device):
        found = torch.autograd.grad(unpermute(kernels, rows, order, weights).sum(), (rows, weights))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=1e-4)


@DEVICES
def test_what_is_dropped_gives_and_receives_zeros(device: str) -> None:
    """Whatever lies in the rows and weights that nobody asked for."""
    order = expert_order(torch.tensor([[0], [0], [-1]], device=device), 2, 1)
    assert order.order.tolist() == [0, -1]
    assert order.slots.tolist() == [[0], [-1], [-1]]
    rows = torch.tensor([[1.0, 2.0], [torch.nan, torch.inf]], device=device, requires_grad=True)
    weights = torch.tensor([[2.0], [torch.nan], [torch.inf]], device=device, requires_grad=True)
    grad = torch.tensor([[1.0, 1.0], [torch.nan, torch.inf], [torch.inf, 1.0]], device=device)
    for kernels in dispatchers(device):
        out = unpermute(kernels, rows, order, weights)
        assert out.tolist() == [[2, 4], [0, 0], [0, 0]]
        grad_rows, grad_weights = torch.autograd.grad(out, (rows, weights), grad)
        assert grad_rows.tolist() == [[2, 2], [0, 0]]
        assert grad_weights.tolist() == [[3], [0], [0]]
        x = torch.full((3, 2), torch.nan, device=device, requires_grad=True)
        moved = permute(kernels, x, order)
        assert moved[1].tolist() == [0, 0]
        (grad_x,) = torch.autograd.grad(moved, x, torch.ones(2, 2, device=device))
        assert grad_x.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_sums_of_bfloat16_are_taken_in_float32() -> None:
    """256 + 1 + … is 256 in bfloat16, whose next number is 258."""
    chosen = torch.zeros(1, 9, dtype=torch.int64)
    order = expert_order(chosen, 1)
    rows = torch.ones(9, 3, dtype=torch.bfloat16)
    rows[0] = 256
    for kernels in dispatchers("cpu"):
        assert unpermute(kernels, rows, order).tolist() == [[264.0] * 3]


def test_the_same_bits_every_time() -> None:
    order = expert_order(torch.arange(60).view(20, 3) * 7 % 5, 5)
    rows, weights = random_values(60, 33), random_values(20, 3)
    for kernels in dispatchers("cpu"):
        first, second = (unpermute(kernels, rows, order, weights) for _ in range(2))
        assert torch.equal(first, second)
    portable, fused = (unpermute(k, rows, order, weights) for k in dispatchers("cpu"))
    assert torch.equal(portable, fused)


def test_the_fused_operations_have_the_cost_models_names() -> None:
    for name in ("permute", "unpermute", "unpermute_backward"):
        assert hasattr(torch.ops.shardwright, name)
    order = ExpertOrder(*(t.to("meta") for t in expert_order(torch.tensor([[0, 1]]), 2)))
    x = torch.empty(1, 6, device="meta")
    assert torch.ops.shardwright.permute(x, order.order, 2).shape == (2, 6)


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    order = expert_order(torch.tensor([[0, 1], [1, 0]]), 2)
    with pytest.raises(InputError, match=r"x: got shape \(3, 4\); allowed: \(2, width\)"):
        permute(PORTABLE, torch.zeros(3, 4), order)
    with pytest.raises(InputError, match=r"rows: got shape \(3, 4\); allowed: \(4, width\)"):
        unpermute(PORTABLE, torch.zeros(3, 4), order)
    with pytest.raises(InputError, match=r"weights: .*allowed: shape \(2, 2\)"):
        unpermute(PORTABLE, torch.zeros(4, 4), order, torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"chosen: got shape \(2,\); allowed: \(tokens, topk\)"):
        expert_order(torch.tensor([0, 1]), 2)
    with pytest.raises(InputError, match="capacity: got 0; allowed: 1 or more"):
        expert_order(torch.tensor([[0]]), 2, 0)
