"""Attention of values narrower than keys, and the turning of a part of each head."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shardwright.kernels.attention.attention import flash_attention, unfused_attention
from shardwright.kernels.attention.rope import Angles, rope_reference, rotate_heads

SEQ, BATCH, HEADS, KEY, VALUE = 24, 2, 3, 20, 12


def heads(width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(SEQ, BATCH, HEADS, width, generator=generator).requires_grad_()


def expected(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    q, k, v = (x.double() for x in (query, key, value))
    scores = torch.einsum("sbhd,tbhd->bhst", q, k) * KEY**-0.5
    future = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
    shares = scores.masked_fill(future, float("-inf")).softmax(-1)
    return torch.einsum("bhst,tbhd->sbhd", shares, v).flatten(2)


@pytest.mark.parametrize("attend", [flash_attention, unfused_attention])
def test_narrow_values_give_the_definition_both_ways(attend: object) -> None:
    given = [heads(width, seed) for seed, width in enumerate((KEY, KEY, VALUE))]
    copies = [x.detach().clone().requires_grad_() for x in given]
    out, wanted = attend(*given), expected(*copies)  # type: ignore[operator]
    assert out.shape == (SEQ, BATCH, HEADS * VALUE)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(9))
    out.backward(grad)
    wanted.backward(grad.double())
    assert (out - wanted).abs().max() < 1e-5
    for mine, right in zip(given, copies, strict=True):
        assert mine.grad is not None
        assert right.grad is not None
        assert (mine.grad - right.grad).abs().max() < 1e-5


@pytest.mark.parametrize("width", [8, KEY])
def test_the_last_numbers_of_a_head_turn(width: int) -> None:
    x = heads(KEY, 3)
    copy = x.detach().clone().double().requires_grad_()
    out = rotate_heads(x, Angles(SEQ, width, 10000.0))
    first, last = copy.split([KEY - width, width], -1)  # type: ignore[no-untyped-call]
    wanted = torch.cat((first, rope_reference(last, 10000.0)), -1)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(9))
    out.backward(grad)
    wanted.backward(grad.double())
    assert (out - wanted).abs().max() < 1e-5
    assert x.grad is not None
    assert copy.grad is not None
    assert (x.grad - copy.grad).abs().max() < 1e-5
