"""Estimates of a preparation from a sample of the texts."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..pipelines.mixture import targets
from ..recipes.data_stage import DataStage, Stages
from ..recipes.recipe import LAST_STAGES, Recipe
from .prepare import PrepareSettings, prepare
from .result import read_data
from .tasks import Job

UNITS = ("documents", "tokens", "bytes")
REPEATS = 3
"""Runs of each sample: a stage takes a tenth of a second, which other work may double."""
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
    sample = replace(recipe, mixture=None)  # reckoned: a sample may lack a domain
    smaller = replace(settings, share=settings.share / SMALLER)
    runs: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for number in range(REPEATS):
        for found, part in zip(runs, (smaller, settings), strict=True):
            out = scratch / f"{part.share}-{number}"
            prepare(sample, folder, out, stages, part, on_event)
            found.append(read_data(out))
    few, whole = map(_median, runs)
    read = whole["stages"][0]
    seen = sum(map(sum, read["facts"]["seen"].values()))
    drawn = read["facts"]["drawn"]
    scale = seen / drawn if drawn else 0.0
    rows = _rows(whole, few, scale, loading)
    mixture, ratio = _mixture(recipe, _left(whole, scale))
    if recipe.mixture is not None:
        rows = _mixed(rows, ratio)
    return {
        "kind": "data_estimate",
        "recipe_hash": recipe.hash,
        "share": settings.share,
        "sampled": read["total"]["in"],
        "scale": scale,
        "stages": [_shown(row) for row in rows],
        "seconds": sum(row["fixed"] + row["grows"] for row in rows),
        "lengths": {
            domain: [
                [most, round(scale * count), round(scale * tokens)]
                for most, count, tokens in lengths
            ]
            for domain, lengths in whole["lengths"].items()
        },
        "mixture": mixture,
    }


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One of equal results, with the middle seconds of all."""
    seconds = {
        name: {
            key: statistics.median(run["seconds"][name].get(key, 0.0) for run in runs)
            for key in found
        }
        for name, found in runs[-1]["seconds"].items()
    }
    return {**runs[-1], "seconds": seconds}


def _left(whole: dict[str, Any], scale: float) -> dict[str, int]:
    """Tokens of each domain behind the stages on texts."""
    last = [s for s in whole["stages"] if s["name"] not in LAST_STAGES][-1]
    rows = last["domains"].items()
    return {domain: round(scale * row["out"]["tokens"]) for domain, row in rows}


def _mixture(recipe: Recipe, available: dict[str, int]) -> tuple[dict[str, Any], float]:
    """What a mixture takes of each domain, and of all tokens.

    A domain that the sample holds nothing of is left out, and the others take its share.
    """
    if recipe.mixture is None:
        return {}, 1.0
    weights = {n: w for n, w in recipe.mixture.weights.items() if not w or available.get(n)}
    total = sum(weights.values())
    if not total:
        return {}, 1.0
    value = replace(recipe.mixture, weights={n: w / total for n, w in weights.items()})
    wanted = targets(value, available)
    found = {
        name: {
            "available": available.get(name, 0),
            "tokens": tokens,
            "share": tokens / max(1, sum(wanted.values())),
            "weight": recipe.mixture.weights[name],
            "epochs": tokens / available[name] if available.get(name) else 0.0,
        }
        for name, tokens in wanted.items()
    }
    return found, sum(wanted.values()) / max(1, sum(available.values()))


def _mixed(rows: list[dict[str, Any]], ratio: float) -> list[dict[str, Any]]:
    """Rows with that of a mixture, and those behind it by what it takes.

    Drawing costs what the cheapest pass over all documents does.
    """
    texts = [row for row in rows if row["name"] not in LAST_STAGES]
    last = [row for row in rows if row["name"] in LAST_STAGES]
    cheapest = min((row["grows"] for row in texts[1:] or texts), default=0.0)
    given = texts[-1]["out"]
    taken = {unit: round(ratio * amount) for unit, amount in given.items()}
    drawn = {"name": "mixture", "in": given, "out": taken, "fixed": 0.0, "grows": cheapest}
    behind = [
        {
            **row,
            "in": {unit: round(ratio * amount) for unit, amount in row["in"].items()},
            "out": {unit: round(ratio * amount) for unit, amount in row["out"].items()},
            "grows": ratio * row["grows"],
        }
        for row in last
    ]
    return [*texts, drawn, *behind]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    amounts = {name: row[name] for name in ("name", "in", "out")}
    return {**amounts, "seconds": row["fixed"] + row["grows"]}


def _load(stage: DataStage) -> float:
    """Seconds of loading what a stage needs, which do not grow with the data."""
    start_s = time.perf_counter()
    for module in stage.needs:
        importlib.import_module(module)
    return time.perf_counter() - start_s


def _rows(
    whole: dict[str, Any], few: dict[str, Any], scale: float, loading: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Amounts of each stage, seconds that are fixed and seconds that grow with the data."""
    rows = []
    for stage, smaller in zip(whole["stages"], few["stages"], strict=True):
        name, total = stage["name"], stage["total"]
        sizes = [each["total"]["in"]["bytes"] for each in (smaller, stage)]
        seconds = [_growing(data["seconds"][name]) for data in (few, whole)]
        fixed, each_byte = _line(sizes, seconds)
        if name == "read":  # all of it was read
            fixed += whole["seconds"][name]["scan_s"]
        rows.append(
            {
                "name": name,
                "in": {unit: round(scale * total["in"][unit]) for unit in UNITS},
                "out": {unit: round(scale * total["out"][unit]) for unit in UNITS},
                "fixed": loading.get(name, 0.0) + fixed,
                "grows": each_byte * scale * sizes[1],
            }
        )
    return rows


def _growing(seconds: dict[str, float]) -> float:
    """Seconds that grow with the sample."""
    return max(0.0, seconds["all"] - seconds.get("scan_s", 0.0) - seconds.get("draw_s", 0.0))


def _line(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Seconds of no byte, and of each, through two measurements; neither is below 0."""
    few, many = sizes
    slope = max(0.0, (seconds[1] - seconds[0]) / (many - few)) if many > few else 0.0
    slope = min(slope, seconds[1] / many) if many else 0.0
    return max(0.0, seconds[1] - slope * many), slope
