"""A recipe's lengths in plans and runs: predicted speed against the run, and another plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.shapes import Row, judged, reported
from support.recipes.corpus import Records

import shardwright as sw
from shardwright.datasets.preparation.document_lengths import document_lengths
from shardwright.profiler.store.profiles import save_profile
from shardwright.profiler.sweep import QUICK_BUDGET_S, measure

MOST_SPEED_ERROR, LEAST_PRICE_CHANGE = 0.2, 0.1
TOKENS, LONG_TOKENS, PIECE = 2048, 32768, 400
CASES = (("2x8xH100", 64, LONG_TOKENS), ("8xA100-40GB", 32, LONG_TOKENS // 2))
"""Cluster, global batch, tokens: memory to spare, and none."""
SEARCH_S = 20.0
MODEL = {
    "layers": 4, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 512,
    "norm": "rmsnorm", "position": "rope",
}  # fmt: skip


def length_rows(place: Path, sources: Mapping[str, Records], steps: int) -> list[Row]:
    """Rows of a recipe of short texts, in windows of 2K and 32K tokens."""
    folder = place / "lengths"
    folder.mkdir()
    records = [
        {"id": f"{record['id']}-{start}", "text": record["text"][start : start + PIECE]}
        for record in sources["library"][:200]
        for start in range(0, min(len(record["text"]), 8000), PIECE)
    ]
    (folder / "part.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    data = {size: _prepared(folder, size) for size in (TOKENS, LONG_TOKENS)}
    return [*_speed(data[TOKENS], steps), *_other_plan(data[LONG_TOKENS])]


def _prepared(folder: Path, size: int) -> Path:
    recipe = {
        "sources": [{"name": "s", "domain": "code", "path": "part.jsonl"}],
        "windows": {"tokens": size, "order": "fit"},
    }
    path = folder / f"recipe-{size}.json"
    path.write_text(json.dumps(recipe))
    sw.data(path).run(folder / str(size))
    return folder / str(size)


def _speed(data: Path, steps: int) -> list[Row]:
    """Predicted and measured speeds, after a quick ``plan profile``."""
    profile = measure(QUICK_BUDGET_S, 1)
    save_profile(profile)
    found: dict[str, tuple[float, float]] = {}
    for name, lengths in (("one", None), ("documents", data / "data.json")):
        handle = sw.simulate(
            MODEL, "local:1", global_batch=2, seq_len=TOKENS, lengths=lengths  # type: ignore[arg-type]
        )  # fmt: skip
        if handle.measured != profile:
            raise RuntimeError("the prediction does not use the profile that was just measured")
        run = handle.execute(steps=steps, data=str(data))
        predicted = handle.prediction.tokens_per_s_per_device
        found[name] = (predicted, run["measured"]["tokens_per_s_per_device"])
    predicted, measured = found["documents"]
    error = predicted / measured - 1
    plain = found["one"][0] / found["one"][1] - 1
    gains = [found["documents"][i] / found["one"][i] for i in (0, 1)]
    return [
        judged("a recipe's lengths: predicted tokens/s against the run",
               f"{predicted:.0f} and {measured:.0f}, {error:+.1%}",
               f"within {MOST_SPEED_ERROR:.0%}", abs(error) <= MOST_SPEED_ERROR, error=error),
        reported("documents against one document a sequence, tokens/s",
                 f"{gains[0]:.2f} x predicted, {gains[1]:.2f} x measured; of one, predicted "
                 f"{plain:+.1%} off the run"),
    ]  # fmt: skip


def _other_plan(data: Path) -> list[Row]:
    rows = []
    for cluster, batch, tokens in CASES:
        sizes: dict[str, Any] = {"global_batch": batch, "seq_len": tokens, "deadline_s": SEARCH_S}
        lengths = document_lengths(data, tokens)
        one = sw.plan("llama-3-8b", cluster, **sizes)
        packed = sw.plan("llama-3-8b", cluster, lengths=lengths, **sizes)
        change = 1 - packed.prediction.step_time_s / one.prediction.step_time_s
        workloads = {"main": replace(packed.plan.workload, lengths=None)}
        differs = replace(packed.plan, workloads=workloads).hash != one.plan.hash
        rows.append(
            judged(
                f"plans of a recipe's lengths and of one length, {tokens} tokens on {cluster}",
                f"{'another' if differs else 'the same'} plan, {change:.1%} less time a step",
                f"another where prices differ by {LEAST_PRICE_CHANGE:.0%}",
                differs or change < LEAST_PRICE_CHANGE,
                change=change,
            )
        )
    return rows
