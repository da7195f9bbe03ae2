"""Embeddings of documents: TF-IDF of hashed words, and its truncated SVD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..recipes.data_stage import Arrays
from ..text_mining.arrays import joined
from .shingles import mixed, word_hashes

COLUMNS = 1 << 15
Array = np.ndarray[Any, Any]


def word_counts(text: str) -> tuple[Array, Array]:
    """Columns of a text's words, and how often each occurs."""
    columns = (mixed(word_hashes(text)) % np.uint64(COLUMNS)).astype(np.uint32)
    found, counts = np.unique(columns, return_counts=True)
    return found, counts.astype(np.float32)


def embedding(sketches: Sequence[Arrays], dimensions: int, seed: int) -> Array:
    """Unit vectors of all documents, (documents, dimensions)."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import TruncatedSVD
    from threadpoolctl import threadpool_limits

    counts = joined(sketches, "counts").astype(np.float64)
    columns = joined(sketches, "values")
    sizes = np.concatenate([np.diff(sketch["bounds"]) for sketch in sketches])
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    rows = len(sizes)
    documents = np.bincount(columns, minlength=COLUMNS)
    inverse = np.log((1 + rows) / (1 + documents)) + 1
    weights = (1 + np.log(counts)) * inverse[columns]
    matrix = csr_matrix((weights, columns, bounds), shape=(rows, COLUMNS))
    if rows <= dimensions:
        return unit(matrix.toarray())
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1))
    matrix = csr_matrix((weights / np.repeat(np.maximum(norms, 1e-12), sizes), columns, bounds),
                        shape=(rows, COLUMNS))  # fmt: skip
    svd = TruncatedSVD(dimensions, algorithm="randomized", n_iter=4, random_state=seed)
    with threadpool_limits(1):  # more threads would change the last bits of sums
        return unit(svd.fit_transform(matrix))


def unit(vectors: Array) -> Array:
    """Rows of length 1; rows of zeros stay."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Array = vectors / np.maximum(norms, 1e-12)
    return scaled
