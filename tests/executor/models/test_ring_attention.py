"""The steps of a ring, merged on one process, are attention to the whole sequence."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from shardwright.executor.data.tasks import select_tokens
from shardwright.executor.models.positions import position_rows
from shardwright.executor.models.token_layout import TokenLayout, token_layout
from shardwright.kernels.attention.attention import attention_reference
from shardwright.kernels.attention.ring_narrow_step import (
    flash_narrow_step,
    flash_narrow_step_backward,
)
from shardwright.kernels.attention.ring_step import (
    flash_full_step,
    flash_full_step_backward,
    flash_step,
    flash_step_backward,
    merge_attention_,
)
from shardwright.spec.errors import RunError
from shardwright.spec.parallel.batch_partition import IndexRange
from shardwright.spec.parallel.sequence_partition import IndexRanges, count, merge_ranges
from shardwright.spec.strategy import LayerStrategy

SEQ_LEN, BATCH, HEADS, KV_HEADS, WIDTH, NARROW = 32, 2, 4, 2, 8, 6


def zigzag(ranks: int) -> list[IndexRanges]:
    return list(token_layout(LayerStrategy(cp=ranks), 0, SEQ_LEN).ring)


def in_order(ranks: int) -> list[IndexRanges]:
    each = SEQ_LEN // ranks
    return [(IndexRange(i * each, (i + 1) * each),) for i in range(ranks)]


def shuffled(ranks: int, pieces: int) -> list[IndexRanges]:
    """Equal pieces dealt at random, unevenly many to each rank."""
    each = SEQ_LEN // pieces
    source = random.Random(pieces)
    owners = [*range(ranks), *(source.randrange(ranks) for _ in range(pieces - ranks))]
    source.shuffle(owners)
    return [
        merge_ranges(
            IndexRange(i * each, (i + 1) * each) for i in range(pieces) if owners[i] == rank
        )
        for rank in range(ranks)
    ]


LAYOUTS = {
    "zigzag of 2": zigzag(2),
    "zigzag of 4": zigzag(4),
    "in order": in_order(4),
    "shuffled": shuffled(3, 8),
    "shuffled finely": shuffled(4, 16),
}


def layout(ring: list[IndexRanges], position: int) -> TokenLayout:
    own = ring[position]
    return TokenLayout(seq_len=SEQ_LEN, read=own, held=own, ring=tuple(ring), position=position)


def index(spans: IndexRanges) -> Tensor:
    return torch.cat([torch.arange(*span) for span in spans])


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_queries_see_of_another_ranks_keys(name: str) -> None:
    ring = LAYOUTS[name]
    for position, other in ((i, j) for i in range(len(ring)) for j in range(len(ring)) if i != j):
        queries, keys = index(ring[position]), index(ring[other])
        seen = torch.zeros(len(queries), len(keys), dtype=torch.bool)
        found = layout(ring, position).seen(other)
        for first, end, many in zip(found[::3], found[1::3], found[2::3], strict=True):
            seen[first:end, :many] = True
        assert torch.equal(seen, keys[None, :] <= queries[:, None])


def test_a_zigzag_step_is_one_kernel_of_half_a_square() -> None:
    ring = LAYOUTS["zigzag of 4"]
    for position in range(4):
        for other in {0, 1, 2, 3} - {position}:
            first, end, keys = layout(ring, position).seen(other)
            assert 2 * (end - first) * keys == count(ring[position]) ** 2


def heads_first(x: Tensor) -> Tensor:
    return x.permute(1, 2, 0, 3)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_merged_steps_are_attention_to_the_whole_sequence(name: str, width: int) -> None:
    ring = LAYOUTS[name]
    torch.manual_seed(0)
    step, step_backward = flash_step, flash_step_backward
    if width < WIDTH:
        step, step_backward = flash_narrow_step, flash_narrow_step_backward
    sizes = ((HEADS, WIDTH), (KV_HEADS, WIDTH), (KV_HEADS, width))
    shapes = [(SEQ_LEN, BATCH, *size) for size in sizes]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    expected = attention_reference(*inputs)
    grad = torch.randn(expected.shape)
    expected.backward(grad)
    found = [torch.zeros(shape) for shape in shapes]
    for position, own in enumerate(ring):
        rows, tokens = index(own), layout(ring, position)
        every = [i.detach() for i in inputs]
        query = heads_first(every[0][rows])
        order = [(position - step) % len(ring) for step in range(len(ring))]
        keys = [[heads_first(x[index(ring[j])]) for x in every[1:]] for j in order]
        parts = [None if j == position else tokens.seen(j) for j in order]
        out, log_sum = step(query, *keys[0], parts[0])
        for held, part in zip(keys[1:], parts[1:], strict=True):
            merge_attention_(out, log_sum, *step(query, *held, part))
        joined_out = out.permute(2, 0, 1, 3).flatten(2)
        torch.testing.assert_close(joined_out, expected[rows].float(), rtol=1e-5, atol=1e-5)
        own_grad = heads_first(grad[rows].unflatten(2, (HEADS, width)))
        for j, held, part in zip(order, keys, parts, strict=True):
            of_query, *others = step_backward(own_grad, query, *held, out, log_sum, part)
            found[0][rows] += of_query.permute(2, 0, 1, 3)
            for total, each in zip(found[1:], others, strict=True):
                total[index(ring[j])] += each.permute(2, 0, 1, 3)
    for total, given in zip(found, inputs, strict=True):
        assert given.grad is not None
        torch.testing.assert_close(total, given.grad.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_merged_steps_of_full_masks_are_attention_to_every_token(name: str) -> None:
    """Order is all the same to them, so any layout is even."""
    ring = LAYOUTS[name]
    torch.manual_seed(1)
    shapes = [(SEQ_LEN, BATCH, heads, WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    expected = attention_reference(*inputs, causal=False)
    grad = torch.randn(expected.shape)
    expected.backward(grad)
    query, key, value = (x.detach() for x in inputs)
    found = [torch.zeros(shape) for shape in shapes]
    for own in ring:
        q, rows = heads_first(query[index(own)]), index(own)
        keys = [tuple(heads_first(x[index(other)]) for x in (key, value)) for other in ring]
        out, log_sum = flash_full_step(q, *keys[0])
        for held in keys[1:]:
            merge_attention_(out, log_sum, *flash_full_step(q, *held))
        merged = out.permute(2, 0, 1, 3).flatten(2)
        torch.testing.assert_close(merged, expected[rows].float(), rtol=1e-5, atol=1e-5)
        own_grad = heads_first(grad[rows].unflatten(2, (HEADS, WIDTH)))
        for other, held in zip(ring, keys, strict=True):
            grads = flash_full_step_backward(own_grad, q, *held, out, log_sum)
            for total, each, place in zip(
                found, grads, (rows, index(other), index(other)), strict=True
            ):
                total[place] += each.permute(2, 0, 1, 3)
    for total, given in zip(found, inputs, strict=True):
        assert given.grad is not None
        torch.testing.assert_close(total, given.grad.float(), rtol=1e-4, atol=1e-5)


def test_values_wider_than_keys_are_refused() -> None:
    query, value = torch.randn(1, 2, 4, NARROW), torch.randn(1, 2, 4, WIDTH)
    with pytest.raises(RunError, match="values wider than keys of 6"):
        flash_narrow_step(query, query, value, None)


def test_position_rows_and_tokens_are_those_of_the_spans() -> None:
    table = torch.randn(SEQ_LEN, 3)
    samples = [torch.arange(100 * i, 100 * i + SEQ_LEN + 1) for i in range(2)]
    for own in (*LAYOUTS["zigzag of 4"], *LAYOUTS["in order"]):
        rows = index(own)
        assert torch.equal(position_rows(table, own).flatten(0, 1), table[rows])
        chosen = select_tokens(torch.stack(samples, dim=1), own)
        assert torch.equal(chosen, torch.stack([sample[rows] for sample in samples], dim=1))
    with pytest.raises(ValueError, match="position rows"):
        position_rows(table, (IndexRange(0, 2), IndexRange(4, 9)))
