"""Estimates of a preparation from a sample of the texts."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..recipes.data_stage import DataStage, Stages
from ..recipes.recipe import Recipe
from .prepare import PrepareSettings, prepare
from .result import read_data
from .tasks import Job

UNITS = ("documents", "tokens", "bytes")
SMALLER = 4
"""How much smaller a second sample is; the two part what a stage takes at least from what grows."""


def estimate(
    recipe: Recipe,
    folder: Path,
    scratch: Path,
    stages: Stages,
    settings: PrepareSettings,
    on_event: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Tokens, documents, bytes and seconds by stage of the whole, from a sample.

    The sample goes through every stage, as the whole would. Amounts are its own, times the texts
    that were read a text of the sample; near copies are drawn together, so that what is dropped of
    them is dropped in the sample. Seconds of reading are measured on the whole; those of the stages
    grow with the bytes that come in.
    """
    job = Job(recipe=recipe, folder=folder, share=settings.share, stages=stages)
    loading = {job.stage(number).name: _load(job.stage(number)) for number in range(len(job.uses))}
    sample = _for_sample(recipe, settings.share)
    smaller = replace(settings, share=settings.share / SMALLER)
    prepare(sample, folder, scratch / "smaller", stages, smaller, on_event)
    prepare(sample, folder, scratch / "sample", stages, settings, on_event)
    few, whole = read_data(scratch / "smaller"), read_data(scratch / "sample")
    read = whole["stages"][0]
    seen = sum(map(sum, read["facts"]["seen"].values()))
    drawn = read["facts"]["drawn"]
    scale = seen / drawn if drawn else 0.0
    rows = list(_rows(whole, few, scale, loading))
    return {
        "kind": "data_estimate",
        "recipe_hash": recipe.hash,
        "share": settings.share,
        "sampled": read["total"]["in"],
        "scale": scale,
        "stages": rows,
        "seconds": sum(row["seconds"] for row in rows),
        "lengths": {
            domain: [
                [most, round(scale * count), round(scale * tokens)]
                for most, count, tokens in lengths
            ]
            for domain, lengths in whole["lengths"].items()
        },
        "mixture": next((s["facts"] for s in whole["stages"] if s["name"] == "mixture"), {}),
    }


def _load(stage: DataStage) -> float:
    """Seconds of loading what a stage needs, which do not grow with the data."""
    start_s = time.perf_counter()
    for module in stage.needs:
        importlib.import_module(module)
    return time.perf_counter() - start_s


def _for_sample(recipe: Recipe, share: float) -> Recipe:
    """The recipe with amounts of a sample."""
    mixture = recipe.mixture
    if mixture is None or mixture.tokens is None:
        return recipe
    return replace(recipe, mixture=replace(mixture, tokens=max(1, round(mixture.tokens * share))))


def _rows(
    whole: dict[str, Any], few: dict[str, Any], scale: float, loading: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    for stage, smaller in zip(whole["stages"], few["stages"], strict=True):
        name, total = stage["name"], stage["total"]
        sizes = [each["total"]["in"]["bytes"] for each in (smaller, stage)]
        seconds = [_growing(data["seconds"][name]) for data in (few, whole)]
        fixed, each_byte = _line(sizes, seconds)
        if name == "read":  # all of it was read
            fixed += whole["seconds"][name]["scan_s"]
        yield {
            "name": name,
            "in": {unit: round(scale * total["in"][unit]) for unit in UNITS},
            "out": {unit: round(scale * total["out"][unit]) for unit in UNITS},
            "seconds": loading.get(name, 0.0) + fixed + each_byte * scale * sizes[1],
        }


def _growing(seconds: dict[str, float]) -> float:
    """Seconds that grow with the sample."""
    return max(0.0, seconds["all"] - seconds.get("scan_s", 0.0) - seconds.get("draw_s", 0.0))


def _line(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Seconds of no byte, and of each, through two measurements; neither is below 0."""
    few, many = sizes
    slope = max(0.0, (seconds[1] - seconds[0]) / (many - few)) if many > few else 0.0
    slope = min(slope, seconds[1] / many) if many else 0.0
    return max(0.0, seconds[1] - slope * many), slope
