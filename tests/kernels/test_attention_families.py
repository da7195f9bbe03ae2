"""Attention with a log-sum-exp and to packed sequences, and which kernels are picked and why."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
import torch
from checks.kernel_checks import (
    Best,
    any_of,
    assert_near,
    dtypes,
    head_counts,
    layouts,
    on_devices,
    query_key_value,
    results,
    tensor,
    widths,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_doubles.flash_doubles import cuda_flash_on_cores
from torch import Tensor

from shardwright.kernels import fused
from shardwright.kernels.attention import flash_variants
from shardwright.kernels.attention.block_masked import (
    BLOCK_MASKED_ATTENTION,
    block_masked_attention,
)
from shardwright.kernels.attention.flash import flash_attention_with_lse
from shardwright.kernels.attention.flash_variants import FLASH_BLOCK_BACKWARD, FLASH_LSE
from shardwright.kernels.attention.masks import CausalMask, DocumentMask, SlidingWindowMask
from shardwright.kernels.attention.varlen import (
    VARLEN_ATTENTION,
    varlen_attention,
    varlen_attention_reference,
)
from shardwright.kernels.dispatch import Dispatcher, Family, Request, choose, explain
from shardwright.spec.errors import InputError

PORTABLE, AUTO = Dispatcher("portable"), Dispatcher()
dispatchers = any_of(AUTO, PORTABLE)
seeds = st.integers(0, 9)
some = settings(max_examples=25)
many = settings(max_examples=50)


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
    inputs = query_key_value(
        seq, seq if causal else keys, heads, width, dtype, device, layout, seed=seed
    )
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
    inputs = query_key_value(tokens, tokens, heads, width, dtype, device, layout, batch=None)
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


halves = any_of(torch.bfloat16, torch.float16)


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
        (VARLEN_ATTENTION, HOPPER, torch.float64, 64, "grouped", "not for float64"),
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
    inputs = query_key_value(6, 6, (2, 1), 8, torch.float32, "cpu")
    flash_attention_with_lse(kernels, *inputs, True)[0].sum().backward()
    block_masked_attention(kernels, *inputs, CausalMask())
    packed = query_key_value(6, 6, (2, 1), 8, torch.float32, "cpu", batch=None)
    varlen_attention(kernels, *packed, bounds_of([2, 4], "cpu"), 4)
    assert {c.family: c.variant.name for c in kernels.choices()} == {
        "flash_attention_lse": "flash_for_cpu",
        "flash_attention_block_backward": "flash_for_cpu",
        "block_masked_attention": "scores",
        "varlen_attention": "grouped",
    }
    assert all(reason for c in kernels.choices() for _, reason in c.passed_over)


def test_what_does_not_fit_together_is_one_line() -> None:
    query, key, value = query_key_value(6, 6, (4, 2), 8, torch.float32, "cpu")
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
