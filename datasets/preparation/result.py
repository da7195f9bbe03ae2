"""``data.json``: recipe, counts, seconds, lengths and digests of prepared data, committed last."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from ...spec.codec import dump_pretty, parse_json, write_atomically
from ...spec.errors import InputError
from ...spec.files import flush_to_disk, read_bytes
from .buckets import read_arrays
from .tasks import Job

DATA = "data.json"
DOCUMENTS = "documents.npz"
LEADING = ("kind", "schema_version", "recipe_hash")
KIND, VERSION = "data", 1


def finished_hash(out: Path) -> str | None:
    """Hash of the recipe of a finished folder; None of others."""
    if not (out / DATA).exists():
        return None
    return str(read_data(out)["recipe_hash"])


def read_data(folder: Path) -> dict[str, Any]:
    """The ``data.json`` of prepared data.

    Raises:
        InputError: no prepared data.
    """
    path = folder / DATA if folder.is_dir() else folder
    what = "a folder that plan data has finished"
    document = parse_json(read_bytes(path, what), str(path))
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(str(path), "another document", what)
    if document.get("schema_version") != VERSION:
        raise InputError(f"{path}: schema_version", document.get("schema_version"), str(VERSION))
    return document


def write_result(job: Job, out: Path, outputs: Path, stages: list[dict[str, Any]]) -> None:
    """Move the outputs to their places, then say that they are whole."""
    if outputs.exists():
        for path in sorted(outputs.iterdir()):
            flush_to_disk(path)
            path.replace(out / path.name)
    documents = read_arrays(out / DOCUMENTS)
    names = sorted(path.name for path in out.glob("tokens-*.npy"))
    facts = {
        "kind": KIND,
        "schema_version": VERSION,
        "recipe": job.recipe.document(),
        "recipe_hash": job.recipe.hash,
        "share": job.share,
        "tokenizer": {"name": job.recipe.tokenizer, **stages[-1]["facts"]},
        "stages": [{k: v for k, v in stage.items() if k != "seconds"} for stage in stages],
        "lengths": lengths_by_domain(documents, job.recipe.domains),
        "files": {name: file_digest(out / name) for name in [DOCUMENTS, *names]},
    }
    text = json.dumps(facts, sort_keys=True)
    document = {
        **facts,
        "digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest(),
        "seconds": {
            stage["name"]: {part: round(s, 3) for part, s in stage["seconds"].items()}
            for stage in stages
        },
    }
    write_atomically(out / DATA, dump_pretty(document, LEADING))


def lengths_by_domain(documents: Any, domains: tuple[str, ...]) -> dict[str, list[list[int]]]:
    """Documents by length: rows of longest length, documents, tokens; lengths double."""
    tokens, places = documents["tokens"], documents["domains"]
    found = {}
    for place, name in enumerate(domains):
        mine = tokens[places == place]
        bins = np.ceil(np.log2(np.maximum(mine, 1))).astype(np.int64)
        found[name] = [
            [int(2**each), int((bins == each).sum()), int(mine[bins == each].sum())]
            for each in np.unique(bins)
        ]
    return found


def file_digest(path: Path) -> str:
    """``sha256:…`` of a file."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
