"""A ring of blocks of keys, merged, is attention to all of them, gradients included."""

from __future__ import annotations

import math

import pytest
import torch
from checks.kernel_checks import (
    Best,
    any_of,
    assert_near,
    dtypes,
    head_counts,
    on_devices,
    query_key_value,
    results,
    tensor,
    widths,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_doubles.flash_doubles import cuda_flash_on_cores
from torch import Tensor

from shardwright.kernels.attention.attention import attention_reference
from shardwright.kernels.attention.flash import (
    flash_attention_backward_block,
    flash_attention_with_lse,
)
from shardwright.kernels.attention.ring_merge import merge_attention
from shardwright.kernels.dispatch import Dispatcher

AUTO, PORTABLE = Dispatcher(), Dispatcher("portable")
dispatchers = any_of(AUTO, PORTABLE)
halves = any_of(torch.bfloat16, torch.float16)
seeds = st.integers(0, 9)
some = settings(max_examples=25)


def ring(
    kernels: Dispatcher, inputs: list[Tensor], grad: Tensor, sizes: list[int], order: list[int]
) -> list[Tensor]:
    """Causal attention and its gradients as a ring does them: a block of keys at a time."""
    q, k, v, g = (x.detach().split(sizes) for x in (*inputs, grad))
    grads = [[torch.zeros_like(t, dtype=torch.float64) for t in x] for x in (q, k, v)]
    outs = []
    for i, query in enumerate(q):
        out = torch.zeros_like(query, dtype=torch.promote_types(query.dtype, torch.float32))
        lse = out.new_full((*query.permute(1, 2, 0, 3).shape[:-1],), -math.inf)
        blind = out.clone(), lse.clone()
        for j in order:
            part = flash_attention_with_lse(kernels, query, k[j], v[j], i == j)
            out, lse = merge_attention(out, lse, *(part if j <= i else blind))
        outs.append(out)
        for j in order:
            if j <= i:
                found = flash_attention_backward_block(
                    kernels, g[i], query, k[j], v[j], out, lse, i == j
                )
                for total, place, new in zip(grads, (i, j, j), found, strict=True):
                    assert new.dtype == query.dtype
                    total[place] += new
    return [torch.cat(outs).flatten(2), *(torch.cat(x) for x in grads)]


@on_devices
@some
@given(
    dispatchers, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.randoms(), head_counts,
    widths, dtypes, seeds,
)  # fmt: skip
def test_a_ring_of_blocks_is_attention_to_all(
    device: str, kernels: Dispatcher, sizes: list[int], random: object, heads: tuple[int, int],
    width: int, dtype: torch.dtype, seed: int,
) -> None:  # fmt: skip
    sizes = [max(sizes)] * len(sizes) if len(sizes) > 2 else sizes
    inputs = query_key_value(sum(sizes), sum(sizes), heads, width, dtype, device, seed=seed)
    grad = tensor(inputs[0].shape, dtype, device, "dense", 7).detach()
    order = list(range(len(sizes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = ring(kernels, inputs, grad, sizes, order)
    exact = [x.detach().double() for x in inputs]
    expected = results(attention_reference, exact, grad.double().flatten(2))
    assert_near(found[:1], expected[:1], dtype)
    assert_near(found[1:], expected[1:], dtype)


@some
@given(st.integers(1, 6), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), seeds)
def test_merging_is_commutative_and_never_overflows(
    seq: int, shift_a: float, shift_b: float, seed: int
) -> None:
    outs = [tensor((seq, 2, 3, 4), torch.float32, "cpu", "dense", seed + n) for n in (0, 1)]
    sums = [tensor((2, 3, seq), torch.float32, "cpu", "dense", seed + n).detach() for n in (2, 3)]
    sums = [sums[0] + shift_a, sums[1] + shift_b]
    out, lse = merge_attention(outs[0], sums[0], outs[1], sums[1])
    again, lse_again = merge_attention(outs[1], sums[1], outs[0], sums[0])
    weights = torch.stack(sums).double().softmax(0).permute(0, 3, 1, 2).unsqueeze(-1)
    expected = (torch.stack(outs).double() * weights).sum(0)
    both = torch.logsumexp(torch.stack(sums).double(), 0)
    # A shift of s leaves the difference of two sums good to s · 2^-23, and weights to a few ulps.
    allowed = 4e-6 * (1 + abs(shift_a) + abs(shift_b))
    assert torch.allclose(out.double(), expected, atol=allowed)
    assert torch.allclose(out, again, atol=1e-6)
    assert torch.allclose(lse.double(), both, rtol=1e-6)
    assert torch.equal(lse, lse_again)


def test_merging_with_what_saw_nothing_changes_nothing() -> None:
    out = tensor((4, 1, 2, 8), torch.float32, "cpu", "dense", 0).detach()
    lse = tensor((1, 2, 4), torch.float32, "cpu", "dense", 1).detach()
    blind = torch.zeros_like(out), torch.full_like(lse, -math.inf)
    for found in (merge_attention(out, lse, *blind), merge_attention(*blind, out, lse)):
        assert torch.equal(found[0], out)
        assert torch.equal(found[1], lse)
    nothing = merge_attention(*blind, *blind)
    assert torch.equal(nothing[0], blind[0])
    assert torch.equal(nothing[1], blind[1])


@on_devices
@pytest.mark.parametrize("kernels", [AUTO, PORTABLE], ids=["auto", "portable"])
def test_a_query_that_sees_nothing_has_no_gradient(device: str, kernels: Dispatcher) -> None:
    query, key, value = (
        x.detach() for x in query_key_value(3, 5, (2, 1), 8, torch.bfloat16, device)
    )
    out, lse = flash_attention_with_lse(kernels, query, key[:0], value[:0], False)
    assert not out.any()
    assert bool((lse == -math.inf).all())
    grads = flash_attention_backward_block(kernels, query, query, key, value, out, lse, False)
    assert [g.shape for g in grads] == [query.shape, key.shape, value.shape]
    assert not any(bool(g.any()) for g in grads)


@some
@given(st.integers(1, 9), st.integers(2, 3), head_counts, widths, halves, seeds)
def test_calls_of_the_cuda_kernels_for_rings(
    size: int, blocks: int, heads: tuple[int, int], width: int, dtype: torch.dtype, seed: int
) -> None:
    total = size * blocks
    inputs = query_key_value(total, total, heads, width, dtype, "cpu", seed=seed)
    grad = tensor(inputs[0].shape, dtype, "cpu", "dense", 7).detach()
    with cuda_flash_on_cores():
        found = ring(Best(), inputs, grad, [size] * blocks, list(range(blocks)))
    exact = [x.detach().double() for x in inputs]
    expected = results(attention_reference, exact, grad.double().flatten(2))
    assert_near(found[:1], expected[:1], dtype)
    assert_near(found[1:], expected[1:], dtype)
