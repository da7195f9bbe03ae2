"""Preparation from sources to token shards, stage after stage.

Each stage's folder gets its name when it is whole, so a stopped preparation goes on after the last
whole one, and ends with the same bytes.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...spec.codec import write_atomically
from ...spec.errors import InputError
from ..recipes.data_stage import Stages
from ..recipes.recipe import Recipe
from ..sources.source_files import SourceFile, source_files
from . import ledger
from .buckets import (
    BUCKETS,
    StoredSketches,
    bucket_path,
    commit_folder,
    read_arrays,
    read_documents,
    write_arrays,
)
from .result import DATA, finished_hash, write_result
from .tasks import DECISIONS, Job, read_rows
from .workers import Workers

WORK = ".work"
JOB = "job.json"
STAGE_FACTS = "stage.json"
OUTPUTS = "outputs"
READ_BYTES, READ_FILES = 32 << 20, 512
"""Of source files that one task reads."""
ROOM = 3
"""Bytes that a preparation needs for each byte of its sources, at most."""
SHIPPED_AT = "shardwright.datasets.pipelines.shipped:STAGES"
Listener = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareSettings:
    """Settings of a preparation that leave its bytes alone.

    ``share``: of the texts that are read, for a sample. ``stages_at``: ``module:NAME`` of the
    stages, where ``jobs`` processes find them.
    """

    jobs: int = 1
    share: float = 1.0
    stages_at: str = SHIPPED_AT


def prepare(
    recipe: Recipe,
    folder: Path,
    out: Path,
    stages: Stages,
    settings: PrepareSettings | None = None,
    on_event: Listener = lambda event: None,
) -> None:
    """Prepare data; an earlier attempt at the same goes on.

    Args:
        recipe: of the data.
        folder: that its paths are relative to.
        out: folder of the result.
        stages: every stage that the recipe may name.
        settings: processes and sample.
        on_event: told what is under way.

    Raises:
        InputError: sources that cannot be used, a folder of another recipe, or too little room.
        RunError: a process was lost.
    """
    settings = settings or PrepareSettings()
    job = Job(recipe=recipe, folder=folder, share=settings.share, stages=stages)
    files = source_files(recipe, folder)
    if finished_hash(out) is not None:
        _require_same(out, recipe.hash, str(finished_hash(out)))
        shutil.rmtree(out / WORK, ignore_errors=True)
        return
    _begin(job, files, out)
    with Workers(job, settings.jobs, settings.stages_at) as workers:
        _Preparation(job, files, out / WORK, workers, on_event).run()
    last = out / WORK / _name(len(job.uses), job.uses[-1].name)
    write_result(job, out, last / OUTPUTS, _stage_documents(out / WORK))
    shutil.rmtree(out / WORK, ignore_errors=True)


def _name(number: int, name: str) -> str:
    return f"{number:02d}-{name}"


def _begin(job: Job, files: list[SourceFile], out: Path) -> None:
    work = out / WORK
    listed = [[file.source, file.name, file.size_bytes] for file in files]
    facts = {"recipe": job.recipe.document(), "share": job.share, "files": listed}
    text = json.dumps(facts, sort_keys=True)
    if (work / JOB).exists():
        earlier = json.loads((work / JOB).read_bytes())
        if earlier != json.loads(text):
            changed = [key for key in facts if earlier[key] != json.loads(text)[key]]
            allowed = "a folder for this recipe, or an empty one"
            raise InputError("--out", f"{out}, begun with another {changed[0]}", allowed)
        return
    if out.exists() and any(path.name != WORK for path in out.iterdir()):
        raise InputError("--out", f"{out} with other files", "a new or empty folder")
    need = ROOM * int(job.share * sum(file.size_bytes for file in files))
    place = next(path for path in (out, *out.absolute().parents) if path.exists())
    if (free := shutil.disk_usage(place).free) < need:
        allowed = f"a disk with room: up to {need >> 20} MiB are needed"
        raise InputError("--out", f"{out} with {free >> 20} MiB free", allowed)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "--out", str(out), f"a folder that may be written ({error.strerror})"
        ) from None
    write_atomically(work / JOB, text)


def _require_same(out: Path, wanted: str, found: str) -> None:
    if wanted != found:
        raise InputError("--out", f"{out}, of recipe {found}", f"that of this one, {wanted}")


def _stage_documents(work: Path) -> list[dict[str, Any]]:
    paths = sorted(work.glob(f"[0-9][0-9]-*/{STAGE_FACTS}"))
    return [json.loads(path.read_bytes()) for path in paths]


class _Preparation:
    """The stages of one preparation, in their folders."""

    def __init__(
        self,
        job: Job,
        files: list[SourceFile],
        work: Path,
        workers: Workers,
        on_event: Listener,
    ) -> None:
        self._job, self._files, self._work = job, files, work
        self._workers, self._on_event = workers, on_event

    def run(self) -> None:
        """Read the sources, and run every stage that is not done."""
        if not is_whole(self._work):
            self._on_event({"event": "again"})
            for path in self._work.glob("*-*"):
                shutil.rmtree(path)
        source = self._work / _name(0, "read")
        if not (source / STAGE_FACTS).exists():
            self._read(source)
        for number, use in enumerate(self._job.uses):
            folder = self._work / _name(number + 1, use.name)
            if not (folder / STAGE_FACTS).exists():
                self._stage(number, source, folder)
            # Its documents and sketches are used up; what it counted stays.
            for path in source.iterdir():
                if path.suffix in (".jsonl", ".npz") and path.name != DECISIONS:
                    path.unlink()
            source = folder

    def _read(self, folder: Path) -> None:
        start_s = time.monotonic()
        partial = _emptied(folder.with_name(f".{folder.name}"))
        groups = list(_grouped(self._files))
        tasks = [
            {
                "do": "read",
                "folder": str(partial),
                "number": number,
                "files": [[f.source, str(f.path), f.name, f.format, f.size_bytes] for f in group],
            }
            for number, group in enumerate(groups)
        ]
        self._do("read", tasks)
        self._do("read", [
            {"do": "gather", "folder": str(partial), "number": number} for number in range(BUCKETS)
        ])  # fmt: skip
        for piece in partial.glob("piece-*"):
            piece.unlink()
        facts, seconds = _seen(partial)
        self._commit("read", partial, folder, start_s, facts, seconds)

    def _stage(self, number: int, source: Path, folder: Path) -> None:
        start_s = time.monotonic()
        stage, use = self._job.stage(number), self._job.uses[number]
        partial = folder.with_name(f".{folder.name}")
        partial.mkdir(exist_ok=True)
        firsts = self._firsts(source)
        shared = {"stage": number, "source": str(source), "folder": str(partial)}
        tasks = [{**shared, "number": bucket, "first": firsts[bucket]} for bucket in range(BUCKETS)]
        facts: dict[str, Any] = {}
        if stage.decide is not None:
            self._do(use.name, [{**task, "do": "sketch"} for task in tasks])
            outputs = _emptied(partial / OUTPUTS)
            windows = source / DECISIONS if self._after_windows(number) else None
            context = self._job.context(
                outputs=outputs, windows=read_arrays(windows) if windows else {}
            )
            decisions = stage.decide(use.value, StoredSketches(partial), context)
            write_arrays(partial / DECISIONS, decisions)
            for sketch in partial.glob("sketch-*"):
                sketch.unlink()
            facts = stage.facts(use.value, decisions) if stage.facts is not None else {}
        self._do(use.name, [{**task, "do": "run"} for task in tasks])
        self._commit(use.name, partial, folder, start_s, facts)

    def _after_windows(self, number: int) -> bool:
        return number > 0 and self._job.uses[number - 1].name == "windows"

    def _firsts(self, source: Path) -> list[int]:
        """Place of each bucket's first document in the whole."""
        firsts, count = [], 0
        for rows in read_rows(source):
            firsts.append(count)
            count += sum(row["out"]["documents"] for row in rows.values())
        return firsts

    def _do(self, name: str, tasks: list[dict[str, Any]]) -> None:
        done = 0

        def on_done() -> None:
            nonlocal done
            done += 1
            self._on_event({"event": "task", "stage": name, "done": done, "total": len(tasks)})

        self._workers.do(tasks, on_done)

    def _commit(
        self,
        name: str,
        partial: Path,
        folder: Path,
        start_s: float,
        facts: dict[str, Any],
        parts: dict[str, float] | None = None,
    ) -> None:
        buckets = read_rows(partial)
        domains = sorted({domain for rows in buckets for domain in rows})
        by_domain = {
            domain: ledger.summed(rows[domain] for rows in buckets if domain in rows)
            for domain in domains
        }
        document = {
            "name": name,
            "total": ledger.summed(by_domain.values()),
            "domains": by_domain,
            "facts": facts,
            "seconds": {"all": time.monotonic() - start_s, **(parts or {})},
        }
        (partial / STAGE_FACTS).write_text(json.dumps(document, sort_keys=True))
        commit_folder(partial, folder)
        self._on_event({"event": "stage", **document})


def _seen(folder: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """Characters of all texts by domain and size class, sampled or not; seconds of reading them."""
    total: dict[str, list[int]] = {}
    drawn = 0
    seconds = {"scan_s": 0.0, "draw_s": 0.0}
    for path in sorted(folder.glob("seen-*.json")):
        part = json.loads(path.read_bytes())
        for domain, counts in part["seen"].items():
            earlier = total.get(domain, [0] * len(counts))
            total[domain] = [one + more for one, more in zip(earlier, counts, strict=True)]
        drawn += part["drawn"]
        seconds = {name: so_far + part[name] for name, so_far in seconds.items()}
        path.unlink()
    return {"seen": total, "drawn": drawn}, seconds


def is_whole(work: Path) -> bool:
    """True if the documents of the last finished stage are as many as it counted."""
    done = sorted(work.glob("[0-9][0-9]-*"))
    try:
        rows = read_rows(done[-1]) if done else []
        return all(
            sum(1 for _ in read_documents(bucket_path(done[-1], number)))
            == sum(row["out"]["documents"] for row in found.values())
            for number, found in enumerate(rows)
        )
    except (OSError, ValueError):
        return False


def _emptied(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    return folder


def _grouped(files: list[SourceFile]) -> Iterator[list[SourceFile]]:
    group: list[SourceFile] = []
    size = 0
    for file in files:
        if group and (size + file.size_bytes > READ_BYTES or len(group) == READ_FILES):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    if group:
        yield group


__all__ = ["DATA", "SHIPPED_AT", "PrepareSettings", "prepare"]
