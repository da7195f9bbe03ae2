"""Attention for rings, packed sequences and block masks: every variant against its definition."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
import torch
from flash_doubles import cuda_flash_on_cores
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_checks import (
    Best,
    any_of,
    assert_near,
    dtypes,
    layouts,
    on_devices,
    results,
    skip_without,
    tensor,
)
from torch import Tensor

from shardwright.kernels import block_masked, flash_variants, fused
from shardwright.kernels.attention import attention_reference
from shardwright.kernels.block_masked import (
    BLOCK_MASKED_ATTENTION,
    block_masked_attention,
    block_masked_attention_reference,
)
from shardwright.kernels.dispatch import Dispatcher, Family, Request, choose, explain
from shardwright.kernels.flash import flash_attention_backward_block, flash_attention_with_lse
from shardwright.kernels.flash_variants import FLASH_BLOCK_BACKWARD, FLASH_LSE
from shardwright.kernels.masks import CausalMask, DocumentMask, Mask, SlidingWindowMask, visible
from shardwright.kernels.ring_merge import merge_attention
from shardwright.kernels.varlen import (
    VARLEN_ATTENTION,
    varlen_attention,
    varlen_attention_reference,
)
from shardwright.spec.errors import InputError

PORTABLE, AUTO = Dispatcher("portable"), Dispatcher()
dispatchers = any_of(AUTO, PORTABLE)
head_counts = any_of((1, 1), (4, 4), (4, 2), (6, 1), (3, 3))
widths = any_of(8, 1, 16, 5, 24)
seeds = st.integers(0, 9)
some = settings(max_examples=25)
many = settings(max_examples=50)


def three(
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
    middle = () if batch is None else (batch,)
    shapes = ((seq, heads[0]), (keys, heads[1]), (keys, heads[1]))
    return [
        tensor((s, *middle, h, width), dtype, device, layout, seed + number)
        for number, (s, h) in enumerate(shapes)
    ]


def with_lse_reference(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> list[Tensor]:
    """Output and log-sum-exp in float64."""
    groups = query.shape[2] // key.shape[2]
    q, k, v = query.double(), *(t.double().repeat_interleave(groups, 2) for t in (key, value))
    scores = torch.einsum("sbhd,tbhd->bhst", q, k) / math.sqrt(q.shape[-1])
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return [torch.einsum("bhst,tbhd->sbhd", scores.softmax(-1), v), scores.logsumexp(-1)]


@on_devices
@many
@given(
    dispatchers, st.integers(1, 40), st.integers(1, 40), head_counts, widths, dtypes, layouts,
    st.booleans(), seeds,
)  # fmt: skip
def test_attention_with_lse(
    device: str, kernels: Dispatcher, seq: int, keys: int, heads: tuple[int, int], width: int,
    dtype: torch.dtype, layout: str, causal: bool, seed: int,
) -> None:  # fmt: skip
    if skip_without(device, dtype):
        return
    inputs = three(seq, seq if causal else keys, heads, width, dtype, device, layout, seed=seed)
    grad = tensor(inputs[0].shape, dtype, device, layout, 7).detach()
    out, lse = flash_attention_with_lse(kernels, *inputs, causal)
    expected = with_lse_reference(*inputs, causal)
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert not lse.requires_grad
    assert_near([out], expected[:1], dtype)
    assert_near([lse], expected[1:], dtype)
    found = results(lambda *a: flash_attention_with_lse(kernels, *a, causal)[0], inputs, grad)
    exact = [x.detach().double() for x in inputs]
    expected = results(lambda *a: with_lse_reference(*a, causal)[0], exact, grad)
    assert_near(found[1:], expected[1:], dtype)


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
    if skip_without(device, dtype):
        return
    sizes = [max(sizes)] * len(sizes) if len(sizes) > 2 else sizes
    inputs = three(sum(sizes), sum(sizes), heads, width, dtype, device, seed=seed)
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
    # A shift of s leaves the difference of two sums good to s · 2^-23.
    allowed = 1e-6 * (1 + abs(shift_a) + abs(shift_b))
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
    query, key, value = (x.detach() for x in three(3, 5, (2, 1), 8, torch.bfloat16, device))
    out, lse = flash_attention_with_lse(kernels, query, key[:0], value[:0], False)
    assert not out.any()
    assert bool((lse == -math.inf).all())
    grads = flash_attention_backward_block(kernels, query, query, key, value, out, lse, False)
    assert [g.shape for g in grads] == [query.shape, key.shape, value.shape]
    assert not any(bool(g.any()) for g in grads)


lengths_of_sequences = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def bounds_of(lengths: list[int], device: str) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


@on_devices
@many
@given(
    dispatchers, lengths_of_sequences, st.integers(0, 5), head_counts, widths, dtypes, layouts,
    st.booleans(),
)  # fmt: skip
def test_packed_sequences(
    device: str, kernels: Dispatcher, lengths: list[int], spare: int, heads: tuple[int, int],
    width: int, dtype: torch.dtype, layout: str, causal: bool,
) -> None:  # fmt: skip
    if skip_without(device, dtype):
        return
    check_packed(kernels, lengths, spare, heads, width, dtype, layout, causal, device)


def check_packed(
    kernels: Dispatcher,
    lengths: list[int],
    spare: int,
    heads: tuple[int, int],
    width: int,
    dtype: torch.dtype,
    layout: str,
    causal: bool,
    device: str,
) -> None:
    tokens, longest = sum(lengths), max(lengths) + spare
    inputs = three(tokens, tokens, heads, width, dtype, device, layout, batch=None)
    grad = tensor(inputs[0].shape, dtype, device, layout, 7).detach()
    bounds = bounds_of(lengths, device)
    if not tokens:
        assert varlen_attention(kernels, *inputs, bounds, longest, causal).shape == grad.shape
        return
    found = results(lambda *a: varlen_attention(kernels, *a, bounds, longest, causal), inputs, grad)
    exact = [x.detach().double() for x in inputs]
    expected = results(lambda *a: varlen_attention_reference(*a, bounds, causal), exact, grad)
    assert_near(found[:1], expected[:1], dtype)
    assert_near(found[1:], expected[1:], dtype)


@st.composite
def masks(draw: st.DrawFn, batch: int, seq: int) -> Mask:
    kind = draw(any_of("causal", "window", "document"))
    if kind == "causal":
        return CausalMask()
    if kind == "window":
        return SlidingWindowMask(draw(st.integers(1, seq + 2)))
    rows = []
    for _ in range(batch):
        ends = sorted({seq, *draw(st.lists(st.integers(1, seq), max_size=4))})
        rows.append(tuple(b - a for a, b in zip([0, *ends], ends, strict=False)))
    return DocumentMask(tuple(rows))


def table_of(mask: Mask, batch: int, seq: int) -> Tensor:
    """What a mask shows, one pair at a time from its own words."""
    table = torch.zeros(batch, 1, seq, seq, dtype=torch.bool)
    for sample in range(batch):
        documents = [0] * seq
        if isinstance(mask, DocumentMask):
            row = mask.lengths[sample]
            documents = [number for number, length in enumerate(row) for _ in range(length)]
        for i in range(seq):
            first = max(0, i - mask.window + 1) if isinstance(mask, SlidingWindowMask) else 0
            for j in range(first, i + 1):
                table[sample, 0, i, j] = documents[i] == documents[j]
    return table


@on_devices
@many
@given(st.data(), dispatchers, st.integers(1, 24), head_counts, widths, dtypes, layouts)
def test_block_masks(
    device: str, data: st.DataObject, kernels: Dispatcher, seq: int, heads: tuple[int, int],
    width: int, dtype: torch.dtype, layout: str,
) -> None:  # fmt: skip
    if skip_without(device, dtype):
        return
    mask = data.draw(masks(2, seq))
    inputs = three(seq, seq, heads, width, dtype, device, layout)
    table = table_of(mask, 2, seq).to(device)
    assert torch.equal(visible(mask, 2, seq, torch.device(device)).expand_as(table), table)
    grad = tensor((seq, 2, heads[0] * width), dtype, device, "dense", 7).detach()
    found = results(lambda *a: block_masked_attention(kernels, *a, mask), inputs, grad)
    exact = [x.detach().double() for x in inputs]
    expected = results(lambda *a: block_masked_attention_reference(*a, table), exact, grad)
    assert_near(found[:1], expected[:1], dtype)
    assert_near(found[1:], expected[1:], dtype)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize(
    "mask",
    [CausalMask(), SlidingWindowMask(40), DocumentMask(((100, 60), (3, 157)))],
    ids=lambda m: m.kind,
)
def test_flex_attention_is_asked_for_the_same_mask(
    mask: Mask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncompiled, on cores, forward only: there the library has no backward pass."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    monkeypatch.setattr(block_masked, "_compiled", lambda kind: (flex_attention, create_block_mask))
    block_masked._block_map.cache_clear()
    q, k, v = (x.detach() for x in three(160, 160, (4, 2), 16, torch.float32, "cpu"))
    out = block_masked._flex(*(t.permute(1, 2, 0, 3) for t in (q, k, v)), mask)
    block_masked._block_map.cache_clear()
    table = table_of(mask, 2, 160)
    expected = block_masked_attention_reference(q, k, v, table)
    assert_near([out.permute(2, 0, 1, 3).flatten(2)], [expected], torch.float32)


halves = any_of(torch.bfloat16, torch.float16)


@some
@given(st.integers(1, 9), st.integers(2, 3), head_counts, widths, halves, seeds)
def test_calls_of_the_cuda_kernels_for_rings(
    size: int, blocks: int, heads: tuple[int, int], width: int, dtype: torch.dtype, seed: int
) -> None:
    total = size * blocks
    inputs = three(total, total, heads, width, dtype, "cpu", seed=seed)
    grad = tensor(inputs[0].shape, dtype, "cpu", "dense", 7).detach()
    with cuda_flash_on_cores():
        found = ring(Best(), inputs, grad, [size] * blocks, list(range(blocks)))
    exact = [x.detach().double() for x in inputs]
    expected = results(attention_reference, exact, grad.double().flatten(2))
    assert_near(found[:1], expected[:1], dtype)
    assert_near(found[1:], expected[1:], dtype)


@some
@example([1, 0, 1], 0, (4, 2), 8, torch.bfloat16, "dense", True)
@given(lengths_of_sequences, st.integers(0, 5), head_counts, widths, halves, layouts, st.booleans())
def test_calls_of_the_cuda_kernel_for_packed_sequences(
    lengths: list[int], spare: int, heads: tuple[int, int], width: int, dtype: torch.dtype,
    layout: str, causal: bool,
) -> None:  # fmt: skip
    with cuda_flash_on_cores():
        check_packed(Best(), lengths, spare, heads, width, dtype, layout, causal, "cpu")


HOPPER, VOLTA = (9, 0), (7, 0)


@pytest.mark.parametrize(
    ("family", "capability", "dtype", "width", "picked", "why"),
    [
        (FLASH_LSE, HOPPER, torch.bfloat16, 128, "flash", None),
        (FLASH_LSE, HOPPER, torch.bfloat16, 5, "flash", None),
        (FLASH_LSE, HOPPER, torch.float32, 128, "scores", "not for float32"),
        (FLASH_BLOCK_BACKWARD, HOPPER, torch.float16, 288, "scores", "heads of 288 are wider"),
        (FLASH_BLOCK_BACKWARD, VOLTA, torch.float16, 64, "scores", "capability 7.0 is below 8.0"),
        (VARLEN_ATTENTION, HOPPER, torch.float16, 64, "packed_flash", None),
        (VARLEN_ATTENTION, HOPPER, torch.float64, 64, "one_by_one", "not for float64"),
        (BLOCK_MASKED_ATTENTION, HOPPER, torch.float32, 64, "flex", None),
        (BLOCK_MASKED_ATTENTION, HOPPER, torch.float32, 8, "scores", "heads of 8 are outside"),
        (BLOCK_MASKED_ATTENTION, HOPPER, torch.float64, 64, "scores", "not for float64"),
        (BLOCK_MASKED_ATTENTION, VOLTA, torch.float16, 64, "scores", "below 8.0"),
    ],
)
def test_what_a_cuda_device_gets_and_why(
    family: Family, capability: tuple[int, int], dtype: torch.dtype, width: int, picked: str,
    why: str | None, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(flash_variants, "capability", lambda index: capability)
    monkeypatch.setattr(fused, "capability", lambda index: capability)
    shape = (64, 4, width) if family is VARLEN_ATTENTION else (2, 4, 64, width)
    choice = choose(family, Request(torch.device("cuda", 0), dtype, shape))
    assert choice.variant.name == picked
    (line,) = explain([choice])
    assert picked in line
    if why is None:
        assert choice.passed_over == ()
    else:
        assert why in line


def test_a_build_without_flash_gets_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
    request = Request(torch.device("cuda", 0), torch.bfloat16, (2, 4, 64, 64))
    choice = choose(FLASH_LSE, request)
    assert choice.variant.name == "scores"
    assert dict(choice.passed_over)["flash"] == "this build of torch has no flash kernel"


def test_cores_get_what_runs_there() -> None:
    kernels = Dispatcher()
    inputs = three(6, 6, (2, 1), 8, torch.float32, "cpu")
    flash_attention_with_lse(kernels, *inputs, True)[0].sum().backward()
    block_masked_attention(kernels, *inputs, CausalMask())
    packed = three(6, 6, (2, 1), 8, torch.float32, "cpu", batch=None)
    varlen_attention(kernels, *packed, bounds_of([2, 4], "cpu"), 4)
    assert {c.family: c.variant.name for c in kernels.choices()} == {
        "flash_attention_lse": "flash_for_cpu",
        "flash_attention_block_backward": "flash_for_cpu",
        "block_masked_attention": "scores",
        "varlen_attention": "one_by_one",
    }
    assert all(reason for c in kernels.choices() for _, reason in c.passed_over)


def test_what_does_not_fit_together_is_one_line() -> None:
    query, key, value = three(6, 6, (4, 2), 8, torch.float32, "cpu")
    packed = [t[:, 0] for t in (query, key, value)]
    odd = [t[:, :, :1].expand(6, 2, 3, 8) for t in (key, value)]
    with pytest.raises(InputError, match="kv_heads that divide 4"):
        flash_attention_with_lse(AUTO, query, *odd, True)
    with pytest.raises(InputError, match="value: got"):
        flash_attention_with_lse(AUTO, query, key, value[..., :4], True)
    with pytest.raises(InputError, match="6 queries, 5 keys"):
        flash_attention_with_lse(AUTO, query, key[:5], value[:5], True)
    with pytest.raises(InputError, match="rising to the 6 tokens"):
        varlen_attention(AUTO, *packed, bounds_of([2, 3], "cpu"), 3)
    with pytest.raises(InputError, match="at least the 4 tokens"):
        varlen_attention(AUTO, *packed, bounds_of([2, 4], "cpu"), 3)
    with pytest.raises(InputError, match="int32"):
        varlen_attention(AUTO, *packed, bounds_of([2, 4], "cpu").long(), 4)
    with pytest.raises(InputError, match="2 rows that add up to 6"):
        block_masked_attention(AUTO, query, key, value, DocumentMask(((6,),)))
    with pytest.raises(InputError, match="1 key or more"):
        SlidingWindowMask(0)
    with pytest.raises(InputError, match="1 token or more"):
        DocumentMask(((3, 0, 3),))
