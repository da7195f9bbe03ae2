"""Lengths of the documents in the windows of prepared data, and their bounds in samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...spec.errors import InputError
from ...spec.workload.document_lengths import DocumentLengths, length_rows
from .buckets import read_arrays
from .result import DOCUMENTS, read_data

FLAG = "--lengths"
Places = np.ndarray[Any, np.dtype[np.int64]]


def document_lengths(path: Path, seq_len: int) -> DocumentLengths:
    """The histogram of documents as sequences of ``seq_len`` tokens of prepared data hold them.

    ``path``: the folder, or its ``data.json``.

    Raises:
        InputError: no prepared data, or sequences that do not divide the windows.
    """
    document = read_data(path)
    folder = path if path.is_dir() else path.parent
    facts = document["tokenizer"]
    if document["recipe"].get("windows") is not None and facts["window"] % seq_len:
        allowed = f"a divisor of the data's windows of {facts['window']} tokens"
        raise InputError("--seq-len", seq_len, allowed, facts["window"])
    total = facts["tokens"] - facts["tokens"] % seq_len
    if not total:
        raise InputError("--seq-len", seq_len, f"at most the data's {facts['tokens']} tokens")
    ends = document_ends(folder, facts["window"])
    cuts = np.union1d(ends[ends < total], np.arange(seq_len, total + 1, seq_len))
    lengths = np.diff(cuts, prepend=0)
    rows = length_rows(lengths.tolist())
    return DocumentLengths(recipe=document["recipe_hash"], window=seq_len, rows=rows)


def document_ends(folder: Path, window: int) -> Places:
    """Where documents, parts of them and padding end in the data's tokens, rising.

    ``window``: tokens of a window of the data.

    Raises:
        InputError: the table of documents cannot be read.
    """
    try:
        table = read_arrays(folder / DOCUMENTS)
        starts = table["window"] * window + table["offset"]
        ends: Places = np.union1d(starts, starts + table["length"]).astype(np.int64)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise InputError(FLAG, str(folder), f"prepared data with {DOCUMENTS} ({reason})") from None
    return ends[ends > 0]


__all__ = ["document_ends", "document_lengths"]
