"""Near duplicates: MinHash with LSH over all sources, verified by Jaccard; the longest stays.

Broder 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ...spec.errors import InputError
from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, dropped, kept
from ..text_mining.arrays import all_rows, joined, ragged, texts_array
from ..text_mining.families import candidate_pairs, jaccard, keepers
from ..text_mining.shingles import shingles

HASHED_AT_ONCE = 8192
LOW_BITS = np.uint64(2**32 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearDuplicates:
    """Settings.

    ``jaccard``: least similarity of two texts' sets of ``words``-grams. ``permutations`` in
    ``bands``: a pair is a candidate if a band of its signatures agrees.
    """

    jaccard: Annotated[float, Field(gt=0, le=1)] = 0.7
    words: Annotated[int, Field(ge=1, le=50)] = 5
    permutations: Annotated[int, Field(ge=1, le=1024)] = 128
    bands: Annotated[int, Field(ge=1, le=1024)] = 32

    def check(self, where: str, domains: tuple[str, ...]) -> None:
        """Refuse bands that do not divide the permutations."""
        if self.permutations % self.bands:
            allowed = f"a divisor of permutations, {self.permutations}"
            near = min(
                (n for n in range(1, self.permutations + 1) if self.permutations % n == 0),
                key=lambda n: abs(n - self.bands),
            )
            raise InputError(f"{where}: bands", self.bands, allowed, near)


def _sketch(value: NearDuplicates, bucket: Bucket, context: StageContext) -> Arrays:
    from datasketch import MinHash

    first = MinHash(num_perm=value.permutations, seed=1, scheme="affine32", hashfunc=int)
    sets, signatures = [], []
    for document in bucket.documents:
        found = shingles(document.text, value.words)
        sketch = MinHash(
            num_perm=value.permutations,
            seed=1,
            scheme="affine32",
            hashfunc=int,
            permutations=first.permutations,
        )
        low = (found & LOW_BITS).tolist()
        for start in range(0, len(low), HASHED_AT_ONCE):
            sketch.update_batch(low[start : start + HASHED_AT_ONCE])
        sets.append(found)
        signatures.append(sketch.hashvalues)
    wide = np.empty((0, value.permutations), dtype=np.uint32)
    return {
        **ragged(sets, "uint64"),
        "signatures": np.stack(signatures) if signatures else wide,
        "lengths": np.array([len(d.text) for d in bucket.documents], dtype=np.int64),
        "digests": texts_array([d.digest for d in bucket.documents]),
    }


def _decide(value: NearDuplicates, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    sets = list(all_rows(sketches))
    candidates = candidate_pairs(joined(sketches, "signatures"), value.bands)
    is_near = [
        bool(len(sets[one])) and jaccard(sets[one], sets[other]) >= value.jaccard
        for one, other in candidates.tolist()
    ]
    pairs = candidates[np.array(is_near, dtype=bool)]
    digests = joined(sketches, "digests").tolist()
    keeper = keepers(pairs, joined(sketches, "lengths"), digests)
    return {"keeper": keeper, "pairs": pairs, "candidates": np.array([len(candidates)])}


def _run(
    value: NearDuplicates, bucket: Bucket, decisions: Arrays, context: StageContext
) -> list[Outcome]:
    keeper = decisions["keeper"]
    return [
        kept(document) if keeper[place] == place else dropped("near copy of a longer text")
        for place, document in enumerate(bucket.documents, bucket.first)
    ]


def _facts(value: NearDuplicates, decisions: Arrays) -> dict[str, Any]:
    keeper = decisions["keeper"]
    dropped_rows = keeper != np.arange(len(keeper))
    return {
        "candidates": int(decisions["candidates"][0]),
        "pairs": len(decisions["pairs"]),
        "families": len(np.unique(keeper[dropped_rows])),
    }


STAGE = DataStage(
    name="near_duplicates",
    value=NearDuplicates,
    scope="corpus",
    help="Of texts that are nearly equal the longest stays, over all sources.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    needs=("datasketch",),
    facts=_facts,
)
