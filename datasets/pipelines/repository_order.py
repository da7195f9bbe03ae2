"""Repository order: files of one repository as one document, what they import first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, dropped, kept
from ..text_mining.arrays import all_rows, ragged
from ..text_mining.imports import imports_first, named_files

JOINED = "joined to its repository"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryOrder:
    """Settings.

    ``domains``: of code. A document's name is its path; its first ``depth`` folders, with the
    source, are the repository.
    """

    domains: tuple[str, ...] = ("code",)
    depth: int = 1


def repository(value: RepositoryOrder, source: str, name: str) -> tuple[str, str]:
    """Repository of a file, and its path in it."""
    parts = name.split("/")
    depth = min(value.depth, len(parts) - 1)
    return "\n".join([source, *parts[:depth]]), "/".join(parts[depth:])


def _bytes(text: str) -> Any:
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)


def _sketch(value: RepositoryOrder, bucket: Bucket, context: StageContext) -> Arrays:
    """Texts and places of files of code; of others an empty row."""
    rows = []
    for document in bucket.documents:
        is_code = document.domain in value.domains and document.name
        place = "\0".join(repository(value, document.source, document.name)) if is_code else ""
        rows += [_bytes(place), _bytes(document.text if is_code else "")]
    return ragged(rows, "uint8")


def _decide(value: RepositoryOrder, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    """The text of each repository, for its first file; -1 for files that it took."""
    repositories: dict[str, dict[str, tuple[int, str]]] = {}
    rows = all_rows(sketches)
    count = 0
    for document, place in enumerate(rows):
        text = next(rows).tobytes().decode("utf-8", "surrogatepass")
        count += 1
        if len(place):
            name, _, path = place.tobytes().decode("utf-8", "surrogatepass").partition("\0")
            repositories.setdefault(name, {}).setdefault(path, (document, text))
    which = np.full(count, -2, dtype=np.int64)
    texts: list[Any] = []
    for name in sorted(repositories):
        files = repositories[name]
        paths = sorted(files)
        root = name.rpartition("\n")[2] if value.depth else ""
        order = imports_first(
            {path: named_files(path, files[path][1], paths, root) for path in paths}
        )
        which[[files[path][0] for path in order]] = -1
        which[files[order[0]][0]] = len(texts)
        texts.append(_bytes("".join(_ended(files[path][1]) for path in order)))
    return {"which": which, **ragged(texts, "uint8")}


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _run(
    value: RepositoryOrder, bucket: Bucket, decisions: Arrays, context: StageContext
) -> list[Outcome]:
    bounds, values = decisions["bounds"], decisions["values"]
    outcomes = []
    for place, document in enumerate(bucket.documents, bucket.first):
        which = int(decisions["which"][place])
        if which == -2:
            outcomes.append(kept(document))
        elif which == -1:
            outcomes.append(dropped(JOINED))
        else:
            text = values[bounds[which] : bounds[which + 1]].tobytes()
            outcomes.append(Outcome(text.decode("utf-8", "surrogatepass"), JOINED))
    return outcomes


def _facts(value: RepositoryOrder, decisions: Arrays) -> dict[str, Any]:
    return {"repositories": len(decisions["bounds"]) - 1}


STAGE = DataStage(
    name="repository_order",
    value=RepositoryOrder,
    scope="corpus",
    needs=("scipy",),
    help="Files of one repository become one document, what they import first.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    facts=_facts,
)
