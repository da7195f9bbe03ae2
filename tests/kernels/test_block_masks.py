"""Attention under block masks: the masks, their maps of blocks, and every variant."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from checks.kernel_checks import (
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
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shardwright.kernels.attention import block_masked
from shardwright.kernels.attention import masks as masks_module
from shardwright.kernels.attention.block_masked import (
    block_masked_attention,
    block_masked_attention_reference,
)
from shardwright.kernels.attention.masks import (
    CausalMask,
    DocumentMask,
    Mask,
    SlidingWindowMask,
    visible,
)
from shardwright.kernels.dispatch import Dispatcher

AUTO, PORTABLE = Dispatcher(), Dispatcher("portable")
dispatchers = any_of(AUTO, PORTABLE)
many = settings(max_examples=50)


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
        rows.append(tuple(b - a for a, b in pairwise([0, *ends])))
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
    mask = data.draw(masks(2, seq))
    inputs = query_key_value(seq, seq, heads, width, dtype, device, layout)
    table = table_of(mask, 2, seq).to(device)
    assert torch.equal(visible(mask, 2, seq, torch.device(device)).expand_as(table), table)
    grad = tensor((seq, 2, heads[0] * width), dtype, device, "dense", 7).detach()
    found = results(lambda *a: block_masked_attention(kernels, *a, mask), inputs, grad)
    exact = [x.detach().double() for x in inputs]
    expected = results(lambda *a: block_masked_attention_reference(*a, table), exact, grad)
    assert_near(found[:1], expected[:1], dtype)
    assert_near(found[1:], expected[1:], dtype)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library's plain operations, forward only: on cores there is no backward pass."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    block_masked._attend.cache_clear()
    yield
    block_masked._attend.cache_clear()


some_masks = pytest.mark.parametrize(
    "mask",
    [CausalMask(), SlidingWindowMask(40), DocumentMask(((230, 60), (3, 287)))],
    ids=lambda m: m.kind,
)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.usefixtures("uncompiled")
def test_flex_attention_is_asked_for_the_same_mask() -> None:
    mask = DocumentMask(((230, 60), (3, 287)))
    q, k, v = (x.detach() for x in query_key_value(290, 290, (4, 2), 16, torch.float32, "cpu"))
    out = block_masked._flex(*(t.permute(1, 2, 0, 3) for t in (q, k, v)), mask)
    expected = block_masked_attention_reference(q, k, v, table_of(mask, 2, 290))
    assert_near([out.permute(2, 0, 1, 3).flatten(2)], [expected], torch.float32)


@some_masks
@pytest.mark.parametrize("at_once", [1, 1 << 26])
def test_maps_of_blocks_are_the_librarys(
    mask: Mask, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    monkeypatch.setattr(masks_module, "MOST_AT_ONCE", at_once)
    block_masked._block_map.cache_clear()
    cpu = torch.device("cpu")
    ours = block_masked._block_map(mask, 2, 290, cpu)
    samples = 2 if mask.per_sample else None
    theirs = create_block_mask(mask.function(cpu), samples, None, 290, 290, device="cpu")
    assert ours.shape == theirs.shape
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    for kind in ("kv", "full_kv", "q", "full_q"):
        found, expected = getattr(ours, f"{kind}_indices"), getattr(theirs, f"{kind}_indices")
        used = torch.arange(3) < getattr(theirs, f"{kind}_num_blocks").unsqueeze(-1)
        assert torch.equal(found[used], expected[used]), kind


def test_every_shape_is_compiled_as_code_of_its_own() -> None:
    """The compiler gives up a piece of code after eight recompilations."""
    shapes = [block_masked._Shape("causal", h, 1, 16, torch.float32, False, True) for h in (1, 2)]
    codes = [block_masked._attend(shape).__wrapped__.__code__ for shape in shapes]
    assert codes[0] is not codes[1]
    assert block_masked._attend(shapes[0]) is block_masked._attend(shapes[0])
