"""Tasks: the parts of a stage that any process can do, each with files in and files out."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..recipes.data_stage import Bucket, DataStage, StageContext, Stages
from ..recipes.recipe import Recipe, StageUse, recipe_of, stage_named
from ..recipes.text_document import Outcome, TextDocument, text_digest
from ..sources.readers import read_texts
from ..sources.source_files import SourceFile
from ..sources.tokenizer import load_tokenizer
from ..text_mining.shingles import mixed, ngram_hashes
from . import ledger
from .buckets import (
    BUCKETS,
    bucket_of,
    bucket_path,
    read_arrays,
    read_documents,
    sketch_path,
    write_arrays,
    write_documents,
)

ENCODED_AT_ONCE = 64
SAMPLE_STEPS = 1 << 32
SIZE_CLASSES = 40
SAMPLED_LINES = 3
DECISIONS = "decisions.npz"
WINDOWS = "windows.npz"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A preparation as every process of it knows it.

    ``folder``: of the recipe. ``share``: of the texts that are read.
    """

    recipe: Recipe
    folder: Path
    share: float
    stages: Stages

    @cached_property
    def uses(self) -> tuple[StageUse, ...]:
        """Every stage that runs, in order."""
        last = [("mixture", self.recipe.mixture), ("windows", self.recipe.windows)]
        used = [StageUse(name, value) for name, value in last if value is not None]
        end = stage_named("tokens", "stages", self.stages)
        return (*self.recipe.stages, *used, StageUse("tokens", end.value()))

    def stage(self, number: int) -> DataStage:
        """The stage of a number."""
        return stage_named(self.uses[number].name, "stages", self.stages)

    def context(self, **more: Any) -> StageContext:
        """Surroundings of the stages."""
        return StageContext(
            seed=self.recipe.seed,
            folder=self.folder,
            tokenizer=self.recipe.tokenizer,
            domains=self.recipe.domains,
            **more,
        )

    def document(self) -> dict[str, Any]:
        """The job as JSON, for another process."""
        recipe = self.recipe.document()
        return {"recipe": recipe, "folder": str(self.folder), "share": self.share}


def job_of(document: Mapping[str, Any], stages: Stages) -> Job:
    """The job of a JSON document."""
    recipe = recipe_of(document["recipe"], "recipe", stages)
    return Job(
        recipe=recipe, folder=Path(document["folder"]), share=document["share"], stages=stages
    )


def read_task(job: Job, files: list[SourceFile], folder: Path, number: int) -> None:
    """Read files and part their documents into pieces of buckets."""
    parted: list[list[TextDocument]] = [[] for _ in range(BUCKETS)]
    reading = _Reading(job)
    for document in reading.documents(files):
        parted[bucket_of(document.digest)].append(document)
    seen = {
        "seen": reading.seen,
        "drawn": reading.drawn,
        "scan_s": reading.scan_s,
        "draw_s": reading.draw_s,
    }
    (folder / f"seen-{number:06d}.json").write_text(json.dumps(seen, sort_keys=True))
    for bucket, documents in enumerate(parted):
        if documents:
            write_documents(folder / f"piece-{bucket:02d}-{number:06d}.jsonl", documents)


def size_class(size: int) -> int:
    """Class of a text by its length, which doubles."""
    return min(SIZE_CLASSES - 1, size.bit_length())


class _Reading:
    """Documents of files, sampled.

    ``seen``: characters of all texts by domain and size class; ``drawn``: of the sample.
    ``scan_s``, ``draw_s``: seconds of reading them, and of drawing the sample.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.seen = {domain: [0] * SIZE_CLASSES for domain in job.recipe.domains}
        self.scan_s = self.draw_s = 0.0
        self.drawn = 0

    def documents(self, files: list[SourceFile]) -> Iterator[TextDocument]:
        """Sampled documents of files, with their tokens counted."""
        tokenizer = load_tokenizer(self._job.recipe.tokenizer, self._job.folder)
        drawn = (document for file in files for document in self._drawn(file))
        while batch := list(islice(drawn, ENCODED_AT_ONCE)):
            yield from _counted(batch, tokenizer)

    def _drawn(self, file: SourceFile) -> Iterator[TextDocument]:
        source = self._job.recipe.sources[file.source]
        start_s = time.perf_counter()
        for name, text in read_texts(file, source):
            read_s = time.perf_counter()
            self.seen[source.domain][size_class(len(text))] += len(text)
            is_drawn = bool(text.strip()) and is_sampled(text, self._job.share)
            self.scan_s += read_s - start_s
            self.draw_s += time.perf_counter() - read_s
            if is_drawn:
                self.drawn += len(text)
                yield TextDocument(
                    source=source.name,
                    domain=source.domain,
                    name=name.encode("utf-8", "replace").decode(),
                    text=text,
                    digest=text_digest(text),
                    tokens=0,
                )
            start_s = time.perf_counter()
        self.scan_s += time.perf_counter() - start_s


def is_sampled(text: str, share: float) -> bool:
    """True for a share of all texts; near copies are drawn together.

    The draw is the least hash of three lines in a row, which two texts have in common as often as
    their sets of such lines are alike (Broder 1997).
    """
    if share >= 1:
        return True
    lines = [line for line in map(bytes.strip, text.encode("utf-8").split(b"\n")) if line]
    hashes = np.fromiter(map(zlib.crc32, lines), dtype=np.uint64, count=len(lines))
    least = int(mixed(ngram_hashes(hashes, SAMPLED_LINES).min(keepdims=True))[0])
    return least % SAMPLE_STEPS < share * SAMPLE_STEPS


def _counted(batch: list[TextDocument], tokenizer: Any) -> list[TextDocument]:
    counts = [len(ids) for ids in tokenizer.encode([document.text for document in batch])]
    return [replace(d, tokens=count) for d, count in zip(batch, counts, strict=True)]


def gather_task(job: Job, folder: Path, number: int) -> None:
    """Join the pieces of a bucket, in the order of the corpus."""
    documents = [
        document
        for piece in sorted(folder.glob(f"piece-{number:02d}-*.jsonl"))
        for document in read_documents(piece)
    ]
    documents.sort(key=lambda document: document.key)
    rows: dict[str, ledger.Row] = {}
    for document in documents:
        row = rows.setdefault(document.domain, ledger.empty_row())
        ledger.record(row, document, [document], "")
    write_documents(bucket_path(folder, number), documents)
    _write_rows(folder, number, rows)


def sketch_task(job: Job, stage: int, number: int, first: int, source: Path, folder: Path) -> None:
    """Sketch a bucket for a stage."""
    path = sketch_path(folder, number)
    if path.exists():  # of an attempt that was stopped
        return
    bucket = Bucket(first=first, documents=list(read_documents(bucket_path(source, number))))
    sketch = job.stage(stage).sketch
    if sketch is None:
        raise ValueError(f"stage {stage} has no sketch")
    write_arrays(path, sketch(job.uses[stage].value, bucket, job.context()))


def run_task(job: Job, stage: int, number: int, first: int, source: Path, folder: Path) -> None:
    """Apply a stage to a bucket, and account for it."""
    bucket = Bucket(first=first, documents=list(read_documents(bucket_path(source, number))))
    decided = folder / DECISIONS
    decisions = read_arrays(decided) if decided.exists() else {}
    outcomes = job.stage(stage).run(job.uses[stage].value, bucket, decisions, job.context())
    tokenizer = load_tokenizer(job.recipe.tokenizer, job.folder)
    rows: dict[str, ledger.Row] = {}
    result: list[TextDocument] = []
    for document, outcome in zip(bucket.documents, outcomes, strict=True):
        after = _after(document, outcome, tokenizer)
        row = rows.setdefault(document.domain, ledger.empty_row())
        ledger.record(row, document, after, outcome.reason)
        result += after
    write_documents(bucket_path(folder, number), result)
    _write_rows(folder, number, rows)


def _after(document: TextDocument, outcome: Outcome, tokenizer: Any) -> list[TextDocument]:
    """What a stage left of a document; a text keeps its place when it is cut."""
    if outcome.text is None or not outcome.text:
        return []
    if outcome.text != document.text:
        tokens = len(tokenizer.encode([outcome.text])[0])
        document = replace(document, text=outcome.text, tokens=tokens)
    return [replace(document, copy=copy) for copy in range(outcome.copies)]


def _write_rows(folder: Path, number: int, rows: dict[str, ledger.Row]) -> None:
    # Flushed when the stage is committed, as all that it wrote.
    (folder / f"rows-{number:02d}.json").write_text(json.dumps(rows, sort_keys=True))


def read_rows(folder: Path) -> list[dict[str, ledger.Row]]:
    """Accounts of all buckets, by domain."""
    paths = [folder / f"rows-{number:02d}.json" for number in range(BUCKETS)]
    return [json.loads(path.read_bytes()) for path in paths]


def perform(job: Job, task: Mapping[str, Any]) -> None:
    """Do one task."""
    folder, number = Path(task["folder"]), int(task["number"])
    match task["do"]:
        case "read":
            files = [
                SourceFile(
                    source=source, path=Path(path), name=name, format=kind, size_bytes=size_bytes
                )
                for source, path, name, kind, size_bytes in task["files"]
            ]
            read_task(job, files, folder, number)
        case "gather":
            gather_task(job, folder, number)
        case "sketch":
            source = Path(task["source"])
            sketch_task(job, int(task["stage"]), number, int(task["first"]), source, folder)
        case "run":
            source = Path(task["source"])
            run_task(job, int(task["stage"]), number, int(task["first"]), source, folder)
        case other:
            raise ValueError(f"no task '{other}'")
