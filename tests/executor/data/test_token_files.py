"""Token files: what counts as one, and which numbers are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardwright.executor.data.text import TextBatches, load_tokens
from shardwright.spec.errors import InputError

VOCAB = 100


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
def test_numbers_come_back_as_they_are(tmp_path: Path, dtype: str) -> None:
    numbers = (np.arange(65) % VOCAB).astype(dtype)
    np.save(tmp_path / "tokens.npy", numbers)
    tokens = load_tokens(VOCAB, tmp_path / "tokens.npy")
    batches = TextBatches(tokens, seq_len=16, global_batch=4, seed=0)
    windows = sorted(batches(0, sample).tolist() for sample in range(4))
    assert windows == [numbers[start : start + 17].tolist() for start in (0, 16, 32, 48)]


@pytest.mark.parametrize(("vocab", "dtype"), [(VOCAB, "<u2"), (70_000, "<u4")])
def test_bare_numbers_are_as_wide_as_the_vocabulary_needs(
    tmp_path: Path, vocab: int, dtype: str
) -> None:
    numbers = (np.arange(40) * 7 % vocab).astype(dtype)
    (tmp_path / "tokens.bin").write_bytes(numbers.tobytes())
    assert load_tokens(vocab, tmp_path / "tokens.bin").tolist() == numbers.tolist()


def test_what_is_no_token_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    for value, message in (
        (np.array([1, 2, VOCAB]), "token 100; allowed: 0 to 99"),
        (np.array([3, -1]), "token -1"),
        (np.ones(4), "float64 of shape"),
        (np.ones((2, 2), dtype=np.int64), r"int64 of shape \(2, 2\)"),
    ):
        np.save(path, value)
        with pytest.raises(InputError, match=message):
            load_tokens(VOCAB, path)
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError, match="whole numbers"):
        load_tokens(VOCAB, path)
    path.write_bytes(b"text")
    with pytest.raises(InputError, match="whole numbers"):
        load_tokens(VOCAB, path)
    odd = tmp_path / "odd.bin"
    for content in (b"", b"abc"):
        odd.write_bytes(content)
        with pytest.raises(InputError, match="a multiple of 2 bytes"):
            load_tokens(VOCAB, odd)
    with pytest.raises(InputError, match="tokens already"):
        load_tokens(VOCAB, odd, tmp_path / "tokenizer.json")
