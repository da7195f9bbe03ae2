"""Toy stages of data recipes, which only tests have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwright.datasets.pipelines.shipped import STAGES as SHIPPED
from shardwright.datasets.recipes.data_stage import Arrays, Bucket, DataStage, StageContext, Stages
from shardwright.datasets.recipes.text_document import Outcome, dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveMedian:
    """Drop what is shorter than the median, and cut the rest to ``characters``."""

    characters: int = 400


def _sketch(value: AboveMedian, bucket: Bucket, context: StageContext) -> Arrays:
    return {"lengths": np.array([len(d.text) for d in bucket.documents], dtype=np.int64)}


def _decide(value: AboveMedian, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    lengths = np.concatenate([sketch["lengths"] for sketch in sketches])
    return {"median": np.array([int(np.median(lengths)) if len(lengths) else 0])}


def _run(
    value: AboveMedian, bucket: Bucket, decisions: Arrays, context: StageContext
) -> list[Outcome]:
    median = int(decisions["median"][0])
    return [
        Outcome(d.text[: value.characters], "beyond the limit")
        if len(d.text) >= median
        else dropped("below the median")
        for d in bucket.documents
    ]


def _facts(value: AboveMedian, decisions: Arrays) -> dict[str, Any]:
    return {"median": int(decisions["median"][0])}


ABOVE_MEDIAN = DataStage(
    name="above_median",
    value=AboveMedian,
    scope="corpus",
    help="Texts shorter than the median are dropped.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    facts=_facts,
)
STAGES: Stages = (*SHIPPED, ABOVE_MEDIAN)
