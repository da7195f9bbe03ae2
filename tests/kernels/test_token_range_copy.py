"""Ranges of tokens out and back: fused and portable copies against the definition."""

from __future__ import annotations

from itertools import pairwise

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

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.token_ranges.copy import (
    gather_reference,
    gather_token_ranges,
    scatter_reference,
    scatter_token_ranges,
)
from shardwright.kernels.token_ranges.ranges import TokenRanges, token_ranges
from shardwright.spec.errors import InputError

PORTABLE = Dispatcher("portable")
FLOATS = (*DTYPES, torch.float64)
shapes = st.sampled_from([(), (1,), (7,), (3, 5), (33,)])


def made(tokens: int, *pieces: tuple[int, int], device: str = "cpu") -> TokenRanges:
    starts, lengths = torch.tensor(pieces, dtype=torch.int64).view(-1, 2).unbind(1)
    return token_ranges(starts, lengths, tokens, device)


@st.composite
def any_pieces(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Tokens and ranges of them in any order, which may be empty and overlap."""
    tokens = draw(st.integers(0, 40))
    pieces = []
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, tokens))
        pieces.append((start, draw(st.integers(0, tokens - start))))
    return tokens, pieces


@st.composite
def separate_pieces(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """The same without overlap: parts of a division of the tokens, in any order."""
    tokens = draw(st.integers(0, 40))
    edges = sorted(draw(st.lists(st.integers(0, tokens), max_size=8)))
    pieces = [(a, b - a) for a, b in pairwise(edges)]
    return tokens, draw(st.permutations(pieces))[: draw(st.integers(0, 8))]


@DEVICES
@settings(max_examples=25)
@given(
    case=any_pieces(), shape=shapes, dtype=st.sampled_from(FLOATS), layout=st.sampled_from(LAYOUTS)
)
def test_gather_and_its_gradient(
    device: str,
    case: tuple[int, list[tuple[int, int]]],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layout: str,
) -> None:
    tokens, pieces = case
    ranges = made(tokens, *pieces, device=device)
    source = strided(random_values(tokens, *shape, dtype=dtype, device=device), layout)
    source.requires_grad_()
    grad = strided(random_values(ranges.total, *shape, seed=1, dtype=dtype, device=device), layout)
    reference = gather_reference(source, ranges)
    (expected,) = torch.autograd.grad(reference, source, grad.double())
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2e-2)
    for kernels in dispatchers(device):
        found = gather_token_ranges(kernels, source, ranges)
        assert found.dtype == dtype
        assert torch.equal(found.double(), reference)
        (found_grad,) = torch.autograd.grad(found, source, grad)
        torch.testing.assert_close(
            found_grad.double(), expected.double(), rtol=tolerance, atol=tolerance
        )
        out = strided(torch.zeros_like(found, requires_grad=False).detach(), layout)
        before = out._version
        assert gather_token_ranges(kernels, source.detach(), ranges, out) is out
        assert torch.equal(out.double(), reference)
        assert out._version > before or not ranges.pieces


@DEVICES
@settings(max_examples=25)
@given(
    case=separate_pieces(),
    shape=shapes,
    dtype=st.sampled_from(FLOATS),
    layout=st.sampled_from(LAYOUTS),
)
def test_scatter_and_its_gradient(
    device: str,
    case: tuple[int, list[tuple[int, int]]],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layout: str,
) -> None:
    tokens, pieces = case
    ranges = made(tokens, *pieces, device=device)
    rows = strided(random_values(ranges.total, *shape, dtype=dtype, device=device), layout)
    rows.requires_grad_()
    grad = strided(random_values(tokens, *shape, seed=1, dtype=dtype, device=device), layout)
    reference = scatter_reference(rows, ranges)
    (expected,) = torch.autograd.grad(reference, rows, grad.double())
    elsewhere = torch.ones(tokens, dtype=torch.bool, device=device)
    for start, length in ranges.pieces:
        elsewhere[start : start + length] = False
    for kernels in dispatchers(device):
        found = scatter_token_ranges(kernels, rows, ranges)
        assert torch.equal(found.double(), reference)
        (found_grad,) = torch.autograd.grad(found, rows, grad)
        assert torch.equal(found_grad, expected)
        assert torch.equal(gather_token_ranges(kernels, found, ranges), rows)
        old = random_values(tokens, *shape, seed=2, dtype=dtype, device=device)
        out = strided(old, layout)
        assert scatter_token_ranges(kernels, rows.detach(), ranges, out) is out
        assert torch.equal(out[elsewhere], old[elsewhere])
        assert torch.equal(out[~elsewhere], found[~elsewhere].detach())


@DEVICES
@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float8_e4m3fn, torch.complex128], ids=str
)
def test_any_type_is_copied(device: str, dtype: torch.dtype) -> None:
    source = random_values(6, 5, device=device).mul(3).to(dtype)
    ranges = made(6, (4, 2), (0, 3), device=device)
    expected = torch.cat((source[4:6], source[0:3]))
    portable, fused = dispatchers(device)
    if dtype.is_complex:
        fused = Dispatcher("auto")
    for kernels in (portable, fused):
        found = gather_token_ranges(kernels, source, ranges)
        assert found.dtype == dtype
        assert found.tolist() == expected.tolist()


@DEVICES
def test_many_programs(device: str) -> None:
    """More rows and columns than a program holds, and more ranges than fit a few halvings."""
    source = random_values(121, 1030, device=device)
    ranges = made(121, *[(n * 3, 1 + n % 3) for n in range(40)], device=device)
    for kernels in dispatchers(device):
        found = gather_token_ranges(kernels, source, ranges)
        assert torch.equal(found.double(), gather_reference(source, ranges))


@DEVICES
def test_overlapping_copies_are_summed_in_float32(device: str) -> None:
    """256 + 1 + … is 256 in bfloat16, whose next number is 258."""
    ranges = made(3, (0, 2), *[(0, 1)] * 8, device=device)
    grad = torch.ones(10, 1, dtype=torch.bfloat16, device=device)
    grad[0] = 256
    for kernels in dispatchers(device):
        source = torch.zeros(3, 1, dtype=torch.bfloat16, device=device, requires_grad=True)
        gather_token_ranges(kernels, source, ranges).backward(grad)
        assert source.grad is not None
        assert source.grad.tolist() == [[264], [1], [0]]


@pytest.mark.gpu
def test_into_pinned_memory_and_back() -> None:
    source = random_values(50, 9, device="cuda")
    ranges = made(50, (40, 10), (3, 20), device="cuda")
    for kernels in dispatchers("cuda"):
        out = torch.empty(30, 9, pin_memory=True)
        gather_token_ranges(kernels, source, ranges, out)
        torch.cuda.synchronize()
        assert torch.equal(out.double(), gather_reference(source, ranges).cpu())
        back = torch.zeros_like(source)
        scatter_token_ranges(kernels, out, ranges, back)
        assert torch.equal(back[40:], source[40:])


def test_to_another_device_it_is_a_copy_a_range() -> None:
    """The meta device stands for one that has memory of its own."""
    out = torch.empty(5, 2, device="meta")
    for kernels in dispatchers("cpu"):
        found = gather_token_ranges(kernels, torch.zeros(9, 2), made(9, (4, 5)), out)
        assert found is out


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (
            [(0, 3), (-1, 2)],
            r"starts\[1\], lengths\[1\]: got -1 and 2; allowed: a range inside 0 to 9",
        ),
        ([(0, -3)], r"lengths\[0\]: got 0 and -3"),
        ([(5, 5)], "got 5 and 5; allowed: a range inside 0 to 9 tokens"),
    ],
)
def test_ranges_that_cannot_be_are_refused(pieces: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(9, *pieces)


def test_what_does_not_fit_is_refused() -> None:
    x, ranges = torch.zeros(9, 2), made(9, (4, 5), (0, 2))
    with pytest.raises(InputError, match=r"starts, lengths: got shapes \(2,\) and \(3,\)"):
        token_ranges(torch.zeros(2), torch.zeros(3), 9)
    with pytest.raises(InputError, match=r"source: got shape \(8, 2\); allowed: \(9, …\)"):
        gather_token_ranges(PORTABLE, x[:8], ranges)
    with pytest.raises(InputError, match=r"out: got torch.int64 of shape \(7, 2\); allowed: torch"):
        gather_token_ranges(PORTABLE, x, ranges, torch.zeros(7, 2, dtype=torch.int64))
    with pytest.raises(InputError, match=r"rows: got shape \(9, 2\); allowed: \(7, …\)"):
        scatter_token_ranges(PORTABLE, x, ranges)
    with pytest.raises(InputError, match="ranges: got 2 to 6 and one from 5; allowed: ranges that"):
        scatter_token_ranges(PORTABLE, torch.zeros(6, 2), made(9, (2, 5), (5, 1)))
    with pytest.raises(InputError, match="out: got a buffer in a differentiable copy"):
        gather_token_ranges(PORTABLE, x.requires_grad_(), ranges, torch.zeros(7, 2))


def test_order_is_that_of_the_ranges() -> None:
    found = gather_token_ranges(PORTABLE, torch.arange(6.0), made(6, (4, 2), (1, 0), (0, 3)))
    assert found.tolist() == [4, 5, 0, 1, 2]
