"""Lowered layers against blocks of the transformers library: FLOPs and saved bytes."""

from __future__ import annotations

import itertools

import pytest
from hf.hf_blocks import block_trace, kept_bytes, lowered_block
from hf.hf_case import BlockCase
from hf.hf_cases import CASES
from hf.hf_differences import DIFFERENCES, listed_differences

from shardwright.spec.choices import AttentionImpl

LARGEST_UNLISTED = 0.01
RUNS = [
    (case, attention, dtype)
    for case in CASES
    for attention, dtype in itertools.product(case.attentions, ("fp32", "bf16"))
]


def name_of(value: object) -> str:
    return value.name if isinstance(value, BlockCase) else str(value)


@pytest.mark.parametrize(("case", "attention", "dtype"), RUNS, ids=name_of)
def test_flops_equal_the_counter(case: BlockCase, attention: AttentionImpl, dtype: str) -> None:
    trace = block_trace(case.name, attention, dtype)
    lowered = lowered_block(case, attention, dtype)
    assert (trace.forward_flops > 0) == (case.kind != "embedding")
    assert lowered.forward.flops == trace.forward_flops
    assert lowered.backward.flops == trace.backward_flops


@pytest.mark.parametrize(("case", "attention", "dtype"), RUNS, ids=name_of)
def test_saved_bytes_equal_the_trace(case: BlockCase, attention: AttentionImpl, dtype: str) -> None:
    """Up to the listed differences, of which each is about storages that it names."""
    trace = block_trace(case.name, attention, dtype)
    listed, rest = listed_differences(trace, case.name, attention, dtype)
    ours = kept_bytes(lowered_block(case, attention, dtype))
    ours -= sum(item.our_bytes for item in listed)
    unlisted = sum(item.size_bytes for item in rest)
    assert abs(ours - unlisted) <= LARGEST_UNLISTED * trace.saved_bytes, (ours, unlisted, rest)


def test_every_listed_difference_is_seen() -> None:
    """A reason that no block shows is not one."""
    traces = [block_trace(case.name, attention, dtype) for case, attention, dtype in RUNS]
    for difference in DIFFERENCES:
        assert any(difference.picks(item) for trace in traces for item in trace.saved), difference
