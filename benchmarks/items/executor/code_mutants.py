"""Small faults in code, drawn by the commit, that the tests must catch.

Every fault is put into a copy of the tree. Tests that run its line are asked first, shortest
first, then those of its folder's rooms, which reach code that runs in processes of its own. Which
tests run a line is measured once per state of the code.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness.paths import BENCHMARKS, ROOT, files_under
from harness.shapes import EVERYTHING, Evidence, Item, Table, judged, reported
from harness.work import Work
from support.code_mutations import Mutation, mutations

ROOMS: Mapping[str, tuple[str, ...]] = {
    "api/server": ("tests/api/service", "tests/api/jobs"),
    "executor/launch": ("tests/executor/launch", "tests/distributed/launch"),
    "executor/checkpoint": ("tests/executor/checkpoint", "tests/distributed/checkpoints"),
    "spec": ("tests/spec", "tests/golden"),
}
"""Folders that get faults, and the tests that are asked last."""
MAPPED = ("tests/spec", "tests/executor", "tests/api", "tests/techniques", "tests/datasets")
"""Tests whose lines are measured, without those that take long."""
FAULTS, DRAWN, GLANCE = 60, 12, 2
"""Faults of the long form, of the short one and of a glance."""
DIRECT_TESTS, DIRECT_S = 60, 20.0
"""Tests that run the line: at most so many, and seconds in all."""
LIMIT_S, ROOM_S, MAP_S = 60.0, 40.0, 120.0
"""Seconds of the tests of a line, which take a third of it on code that is right; of the tests of a
room, after which the fault counts as not caught; and of the map."""
PASSED = (0, 5)
"""Statuses of pytest: all passed, or none was left to run."""
EQUIVALENT = BENCHMARKS / "support" / "equivalent_mutants.toml"


@dataclass(frozen=True, slots=True)
class Lines:
    """Tests with their seconds, and for each file and line the numbers of those that run it."""

    tests: Sequence[tuple[str, float]]
    lines: Mapping[str, Mapping[str, Sequence[int]]]

    def of(self, mutation: Mutation) -> list[str]:
        """The tests that run a fault's line, shortest first."""
        numbers = self.lines.get(mutation.file, {}).get(str(mutation.line), ())
        chosen: list[str] = []
        left_s = DIRECT_S
        for name, seconds in sorted((self.tests[n] for n in numbers), key=lambda test: test[1]):
            left_s -= seconds
            if left_s < 0 or len(chosen) == DIRECT_TESTS:
                break
            chosen.append(name)
        return chosen


def run(work: Work) -> Evidence:
    """Put each drawn fault into a copy of the tree and run tests there."""
    count = work.sized(DRAWN, GLANCE, FAULTS)
    drawn = {mutation.key: mutation for mutation in draw(count, work.seed)}
    with tempfile.TemporaryDirectory() as place:
        (found,) = work.pieces(["lines"], lambda _: _mapped(Path(place)))
        lines = Lines(found["tests"], found["lines"])
        work.spreads = True
        judge = partial(_judged, drawn, lines, Path(place))
        verdicts = dict(zip(drawn, work.pieces(list(drawn), judge), strict=True))
    caught = [key for key, verdict in verdicts.items() if verdict["by"]]
    alive = [drawn[key] for key in drawn if key not in caught]
    return Evidence(
        rows=[
            judged(
                "faults caught", f"{len(caught)} of {len(drawn)}", f"all {len(drawn)}",
                not alive, caught=len(caught), faults=len(drawn),
            ),
            reported("tests mapped to lines", f"{len(lines.tests)}", tests=len(lines.tests)),
        ],
        tables=[
            Table(
                title="Faults that no test caught",
                columns=("place", "fault", "line", "instead"),
                rows=[(f"{m.file}:{m.line}", m.kind, m.code[:100], m.text[:100]) for m in alive],
            )
        ],
    )  # fmt: skip


def draw(count: int, seed: int) -> list[Mutation]:
    """As many faults of every folder, without those known to change nothing."""
    source = random.Random(f"code_mutants {seed}")
    drawn: list[Mutation] = []
    for number, folder in enumerate(ROOMS):
        every = [m for m in _every(folder) if (m.file, m.kind, m.code) not in equivalent()]
        share = count // len(ROOMS) + (number < count % len(ROOMS))
        drawn += source.sample(every, share)
    return drawn


@cache
def _every(folder: str) -> tuple[Mutation, ...]:
    files = [path.relative_to(ROOT).as_posix() for path in files_under(ROOT / folder)]
    return tuple(m for file in files if file.endswith(".py") for m in mutations(ROOT, file))


@cache
def equivalent() -> frozenset[tuple[str, str, str]]:
    """File, kind and line of faults that change nothing anyone could see, each with its reason."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("fault", [])
    return frozenset((each["file"], each["kind"], each["code"]) for each in listed)


def _copy(place: Path) -> Path:
    """This process's copy of the tree, under the package's name."""
    copy = place / str(os.getpid()) / "shardwright"
    if not copy.exists():
        hidden = shutil.ignore_patterns(".git", ".venv", ".state", ".*_cache", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=hidden, symlinks=True)
    return copy


def _mapped(place: Path) -> dict[str, Any]:
    copy = _copy(place)
    found = place / "lines.json"
    settings = {
        "MUTANTS_FOLDERS": " ".join(ROOMS),
        "MUTANTS_MAP": str(found),
        "MUTANTS_LIMIT_S": str(MAP_S),
    }
    words = ["-p", "support.coverage_plugin", "--quick", *MAPPED]
    _tested(copy, words, 2 * MAP_S, settings)
    mapped: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return mapped


def _judged(drawn: Mapping[str, Mutation], lines: Lines, place: Path, key: str) -> dict[str, str]:
    """What caught a fault; nothing if it stayed alive."""
    mutation = drawn[key]
    copy = _copy(place)
    file = copy / mutation.file
    plain = file.read_bytes()
    file.write_bytes(mutation.applied(plain))
    try:
        direct = lines.of(mutation)
        if direct and _tested(copy, ["-x", *direct], LIMIT_S) not in PASSED:
            return {"by": "tests of its line"}
        caught = _tested(copy, ["-x", *_rooms(mutation.file)], ROOM_S) not in (*PASSED, None)
    finally:
        file.write_bytes(plain)
    if caught:
        _must_pass(copy, _rooms(mutation.file))
    return {"by": "tests of its room" if caught else ""}


@cache
def _must_pass(copy: Path, rooms: Sequence[str]) -> None:
    """Raise where the tests of a room fail on code that is right: they would catch anything."""
    if _tested(copy, ["-x", *rooms], ROOM_S) not in (*PASSED, None):
        raise RuntimeError(f"{', '.join(rooms)}: these tests fail without a fault, too")


def _rooms(file: str) -> tuple[str, ...]:
    return next(rooms for folder, rooms in ROOMS.items() if file.startswith(f"{folder}/"))


def _tested(
    copy: Path, words: Sequence[str], limit_s: float, settings: Mapping[str, str] | None = None
) -> int | None:
    """Exit status of pytest in a copy of the tree; None if it ran out of time."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not evidence and not browser", *words]
    environment = {
        **os.environ,
        **(settings or {}),
        "PYTHONPATH": os.pathsep.join((str(copy.parent), str(copy / "benchmarks"))),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run of tests and whatever it left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


ITEM = Item(
    name="code_mutants",
    shows="The tests notice a small fault in the service, launches, checkpoints or documents.",
    target="each of 12 faults drawn by the commit is caught.",
    full_target="each of 60 faults drawn by the seed 0 is caught.",
    run=run,
    reads=(*EVERYTHING, "tests", "benchmarks/support/code_mutations.py",
           "benchmarks/support/coverage_plugin.py",
           "benchmarks/support/equivalent_mutants.toml"),
)  # fmt: skip
