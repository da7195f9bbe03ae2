"""What property tests of kernels share: devices, types, layouts, and one norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from shardwright.kernels.dispatch import Choice, Dispatcher, Family, Policy, Request, choose

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_devices = pytest.mark.parametrize("device", DEVICES)

TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 5e-6,
    torch.bfloat16: 2e-2,
    torch.float16: 4e-3,
}
FLOOR = 0.1
"""Of the largest result: a result that cancels to less is measured against this share of it.

The gradient of a softmax over one key, say, is zero, and what is found is rounding of its terms."""

dtypes = st.sampled_from(list(TOLERANCE))
layouts = st.sampled_from(["dense", "gaps", "turned", "shifted"])


def tensor(shape: Sequence[int], dtype: torch.dtype, device: str, layout: str, seed: int) -> Tensor:
    """Normal deviates that lie in memory as the layout says; a leaf that wants a gradient."""
    values = torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))
    values = values.to(device, dtype)
    if layout == "gaps":
        wider = values.new_zeros(*shape[:-1], 2 * shape[-1])
        found = wider[..., ::2]
    elif layout == "turned":
        found = values.transpose(0, -1).contiguous().transpose(0, -1)
    elif layout == "shifted":
        found = values.new_zeros(values.numel() + 1)[1:].view(shape)
    else:
        found = torch.empty_like(values)
    return found.copy_(values).requires_grad_()


def laid_out_alike(x: Tensor) -> Tensor:
    """A copy with the same strides, gaps and offset."""
    size = x.untyped_storage().nbytes() // x.element_size()
    whole = torch.zeros(size, dtype=x.dtype, device=x.device)
    with torch.no_grad():
        return whole.as_strided(x.shape, x.stride(), x.storage_offset()).copy_(x).detach()


def results(
    function: Callable[..., Tensor], inputs: list[Tensor], grad: Tensor | None = None
) -> list[Tensor]:
    """The output and the inputs' gradients for this gradient of the output.

    The function gets copies, laid out as the inputs are: a kernel may write to what it is given.
    """
    leaves = [laid_out_alike(x).requires_grad_() for x in inputs]
    out = function(*[leaf.view_as(leaf) for leaf in leaves])
    out.backward(torch.ones_like(out) if grad is None else grad.to(out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def assert_near(found: Sequence[Tensor], expected: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Off by at most the type's share of the largest element; see :data:`FLOOR`."""
    assert len(found) == len(expected)
    expected = [b.detach() for b in expected]
    largest = max((float(b.abs().max()) for b in expected if b.numel()), default=0.0)
    for number, (a, b) in enumerate(zip([a.detach() for a in found], expected, strict=True)):
        assert a.shape == b.shape
        if not b.numel():
            continue
        assert bool(torch.isfinite(a).all()), number
        scale = max(float(b.abs().max()), FLOOR * largest)
        off = float((a.double() - b.double()).abs().max())
        assert off <= TOLERANCE[dtype] * scale, (number, off / max(scale, 1e-300))


def assert_equals_definition(
    ours: Callable[..., Tensor], definition: Callable[..., Tensor], inputs: list[Tensor]
) -> None:
    """The output and gradients of ours against those of the definition in float64."""
    dtype, device = inputs[0].dtype, str(inputs[0].device)
    with torch.no_grad():
        shape = definition(*inputs).shape
    grad = tensor(shape, dtype, device, "dense", seed=1).detach()
    expected = results(definition, [x.detach().double() for x in inputs], grad)
    assert len(expected) == len(inputs) + 1
    assert_near(results(ours, inputs, grad), expected, dtype)


def chosen(family: Family, x: Tensor, policy: Policy) -> Choice:
    """What a dispatcher of this policy picks for an operand."""
    request = Request(x.device, x.dtype, tuple(x.shape), policy == "fused")
    return choose(family, request, policy)


class Best(Dispatcher):
    """Picks the first variant whatever it refuses, for tests that give it what it needs."""

    def pick(self, family: Family, deciding: Tensor) -> Callable[..., Any]:
        """The best variant's implementation."""
        return family.variants[0].run


def any_of(*values: Any) -> st.SearchStrategy[Any]:
    """One of these values, the earlier ones the simpler."""
    return st.sampled_from(list(values))


head_counts = any_of((1, 1), (4, 4), (4, 2), (6, 1), (3, 3))
widths = any_of(8, 1, 16, 5, 24)


def query_key_value(
    seq: int,
    keys: int,
    heads: tuple[int, int],
    width: int,
    dtype: torch.dtype,
    device: str,
    layout: str = "dense",
    batch: int | None = 2,
    seed: int = 0,
) -> list[Tensor]:
    """(seq or keys, batch, heads, width) each; without the batch where that is None."""
    middle = () if batch is None else (batch,)
    shapes = ((seq, heads[0]), (keys, heads[1]), (keys, heads[1]))
    return [
        tensor((s, *middle, h, width), dtype, device, layout, seed + number)
        for number, (s, h) in enumerate(shapes)
    ]
