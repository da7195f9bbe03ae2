"""Recipes over the corpus that every machine has: their files, runs and results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.recipes.corpus import Records, write

from shardwright.api.recipes.prepare_data import recipe_at
from shardwright.datasets.pipelines.shipped import STAGES
from shardwright.datasets.preparation.prepare import PrepareSettings, prepare
from shardwright.datasets.recipes.data_stage import StageContext
from shardwright.datasets.recipes.text_document import TextDocument, text_digest
from shardwright.datasets.text_mining.arrays import ragged
from shardwright.datasets.text_mining.embed import embedding, word_counts

RECIPE: dict[str, Any] = {
    "stages": [
        "exact_duplicates",
        "near_duplicates",
        {"repeated_sentences": {"but": []}},
        {"rules": {"least_words": 5}},
    ],
    "mixture": {"weights": {"code": 0.97, "law": 0.03}, "epochs": 2},
    "windows": {"tokens": 8192},
}


def documents_of(sources: Mapping[str, Records]) -> list[TextDocument]:
    """All records as stages see them, in their order."""
    documents = [
        TextDocument(
            source=record["source"],
            domain=record["domain"],
            name=record["id"],
            text=record["text"],
            digest=text_digest(record["text"]),
            tokens=len(record["text"].encode()),
        )
        for records in sources.values()
        for record in records
    ]
    return sorted(documents, key=lambda document: document.key)


def web_documents(texts: Sequence[str]) -> list[TextDocument]:
    """Texts of one source, in their order."""
    return [
        TextDocument(
            source="s",
            domain="web",
            name=str(number),
            text=text,
            digest=text_digest(text),
            tokens=len(text.encode()),
        )
        for number, text in enumerate(texts)
    ]


def text_vectors(texts: Sequence[str], seed: int = 0) -> Any:
    """The windows' own embedding of texts: (texts, 64)."""
    counts = [word_counts(text) for text in texts]
    sketch = {
        **ragged([columns for columns, _ in counts], "uint32"),
        "counts": ragged([each for _, each in counts], "float32")["values"],
    }
    return embedding([sketch], 64, seed)


def stage_context(*domains: str) -> StageContext:
    """Where a stage that is called by itself runs."""
    return StageContext(seed=0, folder=Path.cwd(), tokenizer="bytes", domains=domains)


def recipe_file(folder: Path, sources: Mapping[str, Records], shards: int, order: int) -> Path:
    """Shards and a recipe over them in a new folder."""
    folder.mkdir(parents=True)
    keys = write(folder, dict(sources), shards, order)
    path = folder / "recipe.json"
    path.write_text(json.dumps({**keys, **RECIPE}))
    return path


def prepared(path: Path, out: Path, jobs: int = 1) -> None:
    """Run a recipe."""
    prepare(recipe_at(path), path.parent, out, STAGES, PrepareSettings(jobs=jobs))


def content(out: Path) -> dict[str, bytes]:
    """Bytes of a result, less the seconds that it took."""
    files = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    document = json.loads(files["data.json"])
    document.pop("seconds")
    return {**files, "data.json": json.dumps(document, sort_keys=True).encode()}


__all__ = ["RECIPE", "content", "documents_of", "prepared", "recipe_file", "stage_context",
           "text_vectors", "web_documents"]  # fmt: skip
