"""Histograms of documents' lengths: exact sums, what a token sees, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.datasets.models.load import load_model
from shardwright.spec.codec import from_document, to_document
from shardwright.spec.errors import InputError
from shardwright.spec.rules.executable import unsupported_layer_together
from shardwright.spec.rules.layer_rules import unsupported_run
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.document_lengths import (
    DocumentLengths,
    length_rows,
    lengths_text,
    lengths_violation,
    require_documents,
)
from shardwright.spec.workload.workload import DtypeRecord, Workload

FP32 = DtypeRecord.from_shorthand("fp32")
RECIPE = "sha256:" + "1" * 64


def histogram(lengths: list[int], window: int) -> DocumentLengths:
    return DocumentLengths(recipe=RECIPE, window=window, rows=length_rows(lengths))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4096), min_size=1, max_size=80))
def test_sums_are_exact_and_bounds_hold(lengths: list[int]) -> None:
    found = histogram(lengths, 4096)
    assert found.documents == len(lengths)
    assert sum(row.tokens for row in found.rows) == sum(lengths)
    assert sum(row.squares for row in found.rows) == sum(n * n for n in lengths)
    assert found.attended(4096) == sum(n * n for n in lengths) / sum(lengths)
    assert lengths_violation(found) is None
    for before, row in zip([0, *(r.longest for r in found.rows)], found.rows, strict=False):
        assert before < row.longest
        assert before * row.documents < row.tokens <= row.longest * row.documents


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4096), min_size=1, max_size=40), st.integers(1, 4096))
def test_shorter_sequences_see_no_more(lengths: list[int], seq_len: int) -> None:
    found = histogram(lengths, 4096)
    assert found.attended(seq_len) <= min(seq_len, found.attended(4096)) * (1 + 1e-12)


def test_a_workload_holds_them_and_without_them_it_is_as_before() -> None:
    plain = Workload(global_batch=4, seq_len=64)
    packed = replace(plain, lengths=histogram([16] * 4, 64))
    assert packed.document_tokens == 16
    assert plain.document_tokens is None
    assert "lengths" not in to_document(plain)
    assert from_document(Workload, to_document(packed), "workload") == packed
    assert lengths_text(packed.lengths, 64).startswith("documents of 16 tokens (16 seen")
    assert lengths_text(None, 64) == "one document a sequence"


def test_what_is_no_histogram_is_refused() -> None:
    found = histogram([16, 40], 64)
    assert "rise" in str(lengths_violation(replace(found, rows=found.rows[::-1])))
    wrong = replace(found.rows[0], squares=15 * 16)
    assert "squares" in str(lengths_violation(replace(found, rows=(wrong, *found.rows[1:]))))
    with pytest.raises(InputError, match="--attention: got unfused; allowed: flash"):
        require_documents(found, "unfused")
    require_documents(None, "unfused")


def test_what_the_executor_does_not_mask_is_named() -> None:
    workload = Workload(global_batch=4, seq_len=64, lengths=histogram([16] * 4, 64))
    plain = replace(workload, lengths=None)
    for strategy in (LayerStrategy(cp=2), LayerStrategy(recompute="selective-ops")):
        assert "documents' lengths" in str(unsupported_run(strategy, workload))
        assert "lengths" not in str(unsupported_run(strategy, plain))
    assert (
        unsupported_run(LayerStrategy(tp=2, recompute="full"), replace(workload, dtype=FP32))
        is None
    )
    for name, runs in (("llama-2-7b", True), ("moonlight", False)):
        block = load_model(name)[0].layers()[1]
        reason = unsupported_layer_together(block, workload)
        assert (reason is None) is runs
        assert unsupported_layer_together(block, plain) is None
