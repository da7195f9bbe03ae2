"""Mixture: sampling without replacement to weights by domain; epochs where a domain is short."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ...spec.errors import InputError, nearest_name
from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, dropped
from ..text_mining.arrays import joined, texts_array

SUM_TOLERANCE = 1e-6
MANY_EPOCHS = 4.0
"""Repetitions beyond which tokens are worth ever less (Muennighoff et al., arXiv:2305.16264)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Settings.

    ``weights``: share of the tokens by domain; they sum to 1. ``tokens``: of all domains; None for
    as many as ``epochs`` of the domain that is shortest allow.
    """

    weights: Mapping[str, Annotated[float, Field(ge=0, le=1)]]
    tokens: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[float, Field(gt=0, le=1000)] = 1.0

    def check(self, where: str, domains: tuple[str, ...]) -> None:
        """Refuse weights that do not sum to 1, and domains that no source has, or no weight."""
        for name in self.weights:
            if name not in domains:
                allowed = f"domains of the sources: {', '.join(domains)}"
                raise InputError(f"{where}: weights", name, allowed, nearest_name(name, domains))
        for name in domains:
            if name not in self.weights:
                allowed = "a weight for every domain; 0 leaves one out"
                raise InputError(f"{where}: weights", f"none for {name}", allowed, f"{name}: 0")
        total = sum(self.weights.values())
        if abs(total - 1) > SUM_TOLERANCE:
            raise InputError(f"{where}: weights", f"a sum of {total:g}", "weights that sum to 1")


def _sketch(value: Mixture, bucket: Bucket, context: StageContext) -> Arrays:
    places = {name: place for place, name in enumerate(context.domains)}
    return {
        "tokens": np.array([d.tokens for d in bucket.documents], dtype=np.int64),
        "domains": np.array([places[d.domain] for d in bucket.documents], dtype=np.int64),
        "draws": texts_array([_draw(context.seed, d.key) for d in bucket.documents]),
    }


def _draw(seed: int, key: tuple[Any, ...]) -> str:
    return hashlib.sha256(f"{seed}:{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def targets(value: Mixture, available: Mapping[str, int]) -> dict[str, int]:
    """Tokens of each domain.

    Raises:
        InputError: a domain with a weight of which nothing is left.
    """
    for name, weight in value.weights.items():
        if weight and not available.get(name):
            raise InputError(f"mixture: {name}", "no token left of it", "a weight of 0")
    total = value.tokens
    if total is None:
        total = int(
            min(
                value.epochs * available[n] / weight
                for n, weight in value.weights.items()
                if weight
            )
        )
    return {name: round(total * weight) for name, weight in value.weights.items()}


def _decide(value: Mixture, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    tokens, domains = joined(sketches, "tokens"), joined(sketches, "domains")
    draws = joined(sketches, "draws")
    copies = np.zeros(len(tokens), dtype=np.int64)
    sums = {n: int(tokens[domains == place].sum()) for place, n in enumerate(context.domains)}
    wanted = targets(value, sums)
    for place, name in enumerate(context.domains):
        mine = np.flatnonzero(domains == place)
        if not len(mine) or not sums[name]:
            continue
        whole, room = divmod(wanted[name], sums[name])
        copies[mine] = whole
        for row in mine[np.argsort(draws[mine], kind="stable")].tolist():
            if tokens[row] <= room:
                copies[row] += 1
                room -= int(tokens[row])
    names = list(context.domains)
    return {
        "copies": copies,
        "available": np.array([sums[name] for name in names]),
        "wanted": np.array([wanted[name] for name in names]),
        "taken": np.array([int((copies * tokens)[domains == p].sum()) for p in range(len(names))]),
        "names": np.array([name.encode() for name in names], dtype=np.bytes_),
    }


def _run(value: Mixture, bucket: Bucket, decisions: Arrays, context: StageContext) -> list[Outcome]:
    copies = decisions["copies"][bucket.first : bucket.first + len(bucket.documents)].tolist()
    return [
        Outcome(document.text, "", count) if count else dropped("not drawn for the mixture")
        for document, count in zip(bucket.documents, copies, strict=True)
    ]


def _facts(value: Mixture, decisions: Arrays) -> dict[str, Any]:
    rows = zip(*(decisions[name].tolist() for name in ("names", "available", "taken")), strict=True)
    total = max(1, int(decisions["taken"].sum()))
    return {
        name.decode(): {
            "available": available,
            "tokens": taken,
            "share": taken / total,
            "weight": value.weights[name.decode()],
            "epochs": taken / available if available else 0.0,
        }
        for name, available, taken in rows
    }


STAGE = DataStage(
    name="mixture",
    value=Mixture,
    scope="corpus",
    help="Documents are drawn so that domains have their shares of the tokens.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    facts=_facts,
)
