"""Prepared data: each window once an epoch, whole, and the same under any batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardwright.datasets.pipelines.shipped import STAGES
from shardwright.datasets.preparation import prepare as engine
from shardwright.datasets.preparation.document_lengths import document_lengths
from shardwright.datasets.preparation.prepare import prepare
from shardwright.datasets.recipes.recipe import recipe_of
from shardwright.executor.data.prepared import (
    ShardedTokens,
    is_prepared,
    prepared_batches,
    recipe_hash,
)
from shardwright.spec.errors import InputError

END, VOCAB = 256, 300


def prepared(folder: Path, windows: dict[str, Any] | None) -> Path:
    records = [{"id": str(n), "text": f"text {n} " * (n % 7 + 1)} for n in range(40)]
    (folder / "part.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    keys = {"sources": [{"name": "s", "domain": "d", "path": "part.jsonl"}], "windows": windows}
    recipe = recipe_of({k: v for k, v in keys.items() if v is not None}, "recipe", STAGES)
    prepare(recipe, folder, folder / "out", STAGES)
    assert recipe_hash(folder / "out") == recipe.hash
    return folder / "out"


def test_each_window_comes_whole_and_once_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardwright.datasets.pipelines import tokens

    monkeypatch.setattr(tokens, "SHARD_TOKENS", 200)
    out = prepared(tmp_path, {"tokens": 64, "order": "fit"})
    names = sorted(path.name for path in out.glob("tokens-*.npy"))
    whole = np.concatenate([np.load(out / name) for name in names])
    assert len(names) > 2
    batches = prepared_batches(out, VOCAB, 64, global_batch=4, seed=1)
    count = len(whole) // 64
    records = [batches(n // 4, n % 4).tolist() for n in range(count)]
    assert sorted(r[:-1] for r in records) == sorted(whole.reshape(-1, 64).tolist())
    assert {r[-1] for r in records} == {END}
    assert prepared_batches(out, VOCAB, 64, 4, 1)(2, 3).tolist() == batches(2, 3).tolist()
    assert [
        prepared_batches(out, VOCAB, 64, 8, 1)(n // 8, n % 8).tolist() for n in range(count)
    ] == records


def test_shorter_sequences_stay_in_their_windows(tmp_path: Path) -> None:
    out = prepared(tmp_path, {"tokens": 64, "order": "fit"})
    whole = np.load(out / "tokens-00000.npy").astype(int).tolist()
    batches = prepared_batches(out, VOCAB, 32, global_batch=1, seed=1)
    for n in range(batches.windows):
        start = batches.position(n, 0) * 32
        end = END if start % 64 else whole[start + 32]
        assert batches(n, 0).tolist() == [*whole[start : start + 32], end]
    with pytest.raises(InputError, match=r"--seq-len: got 48; .* of 64 tokens; nearest: 64"):
        prepared_batches(out, VOCAB, 48, 1, 1)
    with pytest.raises(InputError, match=r"of 257 tokens; allowed: .* at most the model's 256"):
        prepared_batches(out, 256, 32, 1, 1)


def test_a_stream_without_windows_is_read_like_text(tmp_path: Path) -> None:
    out = prepared(tmp_path, None)
    whole = np.load(out / "tokens-00000.npy").astype(int).tolist()
    batches = prepared_batches(out, VOCAB, 50, global_batch=1, seed=1)
    assert whole.count(END) == 40
    for n in range(batches.windows):
        start = batches.position(n, 0) * 50
        assert batches(n, 0).tolist() == [*whole, END][start : start + 51]


def test_a_shard_that_is_gone_is_one_line(tmp_path: Path) -> None:
    out = prepared(tmp_path, None)
    assert is_prepared(out)
    assert not is_prepared(tmp_path)
    (out / "tokens-00000.npy").unlink()
    with pytest.raises(InputError, match="all its shards"):
        ShardedTokens(out, ["tokens-00000.npy"])
    assert engine.WORK not in {path.name for path in out.iterdir()}


def test_documents_end_where_the_text_says(tmp_path: Path) -> None:
    out = prepared(tmp_path, {"tokens": 64, "order": "fit"})
    lengths = document_lengths(out / "data.json", 32)
    batches = prepared_batches(out, VOCAB, 32, 1, 1, lengths)
    found: list[int] = []
    for n in range(batches.windows):
        ends = batches.documents(n, 0)
        text = batches(n, 0).tolist()
        assert ends[-1] == 32
        inner = [i + 1 for i, token in enumerate(text[:-1]) if token == END]
        assert set(ends[:-1]) <= set(inner)
        assert min(inner, default=32) in ends
        found += np.diff([0, *ends]).tolist()
    total = sum(row.tokens for row in lengths.rows)
    assert total == sum(found) == batches.windows * 32
    assert sum(row.squares for row in lengths.rows) == sum(n * n for n in found)
    assert lengths.documents == len(found)
    with pytest.raises(RuntimeError, match="one document each"):
        prepared_batches(out, VOCAB, 32, 1, 1).documents(0, 0)
    other = replace(lengths, recipe="sha256:" + "0" * 64)
    with pytest.raises(InputError, match=r"data of the plan's recipe sha256:0"):
        prepared_batches(out, VOCAB, 32, 1, 1, other)
    with pytest.raises(InputError, match=r"--seq-len: got 48"):
        document_lengths(out, 48)
    (out / "documents.npz").write_bytes(b"none")
    with pytest.raises(InputError, match=r"documents\.npz"):
        document_lengths(out, 32)
