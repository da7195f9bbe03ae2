"""Checkpoints of real runs: under other plans, after kills, and with damage."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged
from harness.work import Work
from ranks.checkpoint_files import any_byte, files_of, flip, tensor_at
from ranks.checkpoint_matrix import (
    CELLS,
    LAST,
    LEGAL,
    SAME_BOUND,
    Cell,
    Run,
    apart,
    others,
    payload,
    resumed,
    save,
)
from ranks.rank_pools import RankPool

from shardwright.executor.checkpoint.loader import newest_valid
from shardwright.executor.checkpoint.manifest import MANIFEST, Manifest, read_manifest
from shardwright.executor.checkpoint.storage.folders import step_folders
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.errors import RunError

OTHERS, KILLS, FLIPS, CUTS = 4, 20, 1000, 200
PIECES = 10
"""Pieces in which the damages are done."""
SHORT_CELLS, SHORT_OTHERS, SHORT_KILLS, SHORT_PIECES = 12, 2, 8, 3
"""Work of the short form."""
BLOCK = 100
"""Seeds that a commit may draw."""
INTERVAL, KILLED_STEPS = 3, 12
SILENT_AFTER_S = 60.0
"""Eight ranks on two cores may keep one from its heartbeat."""


class Pools:
    """Pools of ranks, each made when it is first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._pools: dict[int, RankPool] = {}

    def run(self, ranks: int, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Run the matrix, the kills and the damages."""
        if ranks not in self._pools:
            pool = RankPool(ranks, silent_after_s=SILENT_AFTER_S)
            self._pools[ranks] = self._stack.enter_context(pool)
        result: dict[str, Any] = self._pools[ranks].run(TRAIN_JOB, dict(asked))[0]
        return result


def run(work: Work) -> Evidence:
    """Run the matrix, the kills and the damages."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        pools, root = Pools(stack), Path(folder)
        first = work.first_seed(BLOCK)
        cells = work.sample([str(c) for c in LEGAL], SHORT_CELLS, 4)
        count = work.sized(SHORT_OTHERS, 1, OTHERS)
        matrix = work.pieces(
            [f"matrix {name}" for name in cells],
            lambda key: _matrix(
                pools.run, key.removeprefix("matrix "), root / key, count, 4 if work.quick else 8
            ),
        )
        kills = work.pieces(
            [f"kill {first + n}" for n in range(work.sized(SHORT_KILLS, 2, KILLS))],
            lambda key: _kill(pools.run, int(key.split()[1]), root / key),
        )
        damages = work.pieces(
            [f"damage {first + n}" for n in range(work.sized(SHORT_PIECES, 1, PIECES))],
            lambda key: _damage(pools.run, int(key.split()[1]), root / key),
        )
    rows = [*_matrix_rows(matrix), *_kill_rows(kills), *_damage_rows(damages)]
    return Evidence(rows=rows, tables=[_matrix_table(cells, matrix), _kill_table(kills)])


def _matrix(runs: Run, name: str, root: Path, count: int, most_ranks: int) -> dict[str, Any]:
    """A cell saved once, and resumed under itself and ``count`` others."""
    cell = next(cell for cell in LEGAL if str(cell) == name)
    saved = save(runs, cell, root)
    again = resumed(runs, cell, saved)
    chosen = others(cell, OTHERS, most_ranks=most_ranks)[:count]
    return {
        "same": [a.hex() == b.hex() for a, b in zip(again, saved.losses, strict=True)],
        "others": {str(o): apart(resumed(runs, o, saved), saved.losses) for o in chosen},
    }


def _kill(runs: Run, number: int, root: Path) -> dict[str, Any]:
    """A rank killed at a random moment of a run, then resumed.

    Every other run waits for its checkpoints; the others write them beside their steps, as a
    person's runs do.
    """
    source = random.Random(number)
    cell = source.choice([cell for cell in LEGAL if 2 <= cell.ranks <= 4])
    rank, step = source.randrange(cell.ranks), source.randint(INTERVAL + 1, KILLED_STEPS)
    fault = {"rank": rank, "step": step, "how": "kill", "at": source.choice(["begin", "update"])}
    whole = runs(cell.ranks, payload(cell, KILLED_STEPS))["measured"]["losses"]
    waits = number % 2 == 0
    settings = payload(cell, KILLED_STEPS, folder=str(root), every=INTERVAL, wait=waits)
    try:
        runs(cell.ranks, {**settings, "faults": [fault]})
        raise RuntimeError(f"{cell}: rank {rank} was not killed in step {step}")
    except RunError as error:
        named = f"rank {rank} was killed by SIGKILL" in str(error)
    settings["checkpoint"]["resume"] = str(root)
    result = runs(cell.ranks, settings)
    begun = result["checkpoint"]["resumed"]["step"]
    again = result["measured"]["losses"]
    return {
        "what": f"{cell}, rank {rank} in step {step}",
        "waits": waits,
        "named": named,
        "lost": step - 1 - begun,
        "same": [a.hex() == b.hex() for a, b in zip(again, whole[begun:], strict=True)],
    }


def _damage(runs: Run, number: int, root: Path) -> dict[str, Any]:
    cell = Cell("zero3", 2)
    runs(cell.ranks, payload(cell, LAST, folder=str(root), every=LAST // 2))
    newest, older = step_folders(root)
    source, manifest = random.Random(number), read_manifest(newest)
    with _alone():
        flips = [_flipped(newest, older, manifest, source) for _ in range(FLIPS // PIECES)]
        cuts = [_cut(newest, older, source) for _ in range(CUTS // PIECES)]
    return {"flips": flips, "cuts": cuts}


@contextmanager
def _alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _seen(older: Path, file: str, tensor: str | None) -> bool:
    messages: list[str] = []
    newest = newest_valid(older.parent, 0, torch.device("cpu"), messages.append)
    named = len(messages) == 1 and f"({file}, " in messages[0]
    if tensor is not None:
        named = named and f"({file}, {tensor or 'its header'}: " in messages[0]
    return named and newest.folder == older


def _flipped(newest: Path, older: Path, manifest: Manifest, source: random.Random) -> bool:
    path, byte = any_byte(newest, source)
    bit = source.randrange(8)
    flip(path, byte, bit)
    tensor = None if path.name == MANIFEST else tensor_at(manifest, path.name, byte)
    seen = _seen(older, path.name, tensor)
    flip(path, byte, bit)
    return seen


def _cut(newest: Path, older: Path, source: random.Random) -> bool:
    path = source.choice(files_of(newest))
    whole = path.read_bytes()
    path.write_bytes(whole[: source.randrange(len(whole))])
    seen = _seen(older, path.name, None)
    path.write_bytes(whole)
    return seen


def _matrix_rows(pieces: list[dict[str, Any]]) -> list[Row]:
    same = [flag for piece in pieces for flag in piece["same"]]
    apart_by = [value for piece in pieces for value in piece["others"].values()]
    worst = max(apart_by)
    return [
        judged(
            "losses after a resume under the same plan",
            f"{sum(same)} of {len(same)} equal to the last bit, {len(pieces)} plans",
            "all",
            all(same),
            equal=sum(same),
            losses=len(same),
        ),
        judged(
            "losses of the next 4 steps under another plan",
            f"worst relative difference {worst:.1e} of {len(apart_by)} resumes",
            f"at most {SAME_BOUND:g}",
            worst <= SAME_BOUND,
            worst=worst,
            resumes=len(apart_by),
        ),
    ]


def _kill_rows(pieces: list[dict[str, Any]]) -> list[Row]:
    lost = [piece["lost"] for piece in pieces]
    same = all(flag for piece in pieces for flag in piece["same"])
    named, waiting = (sum(piece[key] for piece in pieces) for key in ("named", "waits"))
    return [
        judged(
            "steps lost to a killed rank",
            f"at most {max(lost)} in {len(lost)} kills, with a checkpoint every {INTERVAL} steps, "
            f"{waiting} runs waiting for theirs; the rank named {named} times",
            f"at most {INTERVAL}, always named",
            max(lost) <= INTERVAL and named == len(pieces),
            worst=max(lost),
            kills=len(lost),
        ),
        judged(
            "losses after a kill and a resume",
            "equal to the last bit" if same else "not equal",
            "equal to the last bit",
            same,
        ),
    ]


def _damage_rows(pieces: list[dict[str, Any]]) -> list[Row]:
    rows = []
    for key, name in (("flips", "bit flips"), ("cuts", "truncations")):
        seen = [flag for piece in pieces for flag in piece[key]]
        rows.append(
            judged(
                name,
                f"{sum(seen)} of {len(seen)} told of by file and tensor, and the checkpoint "
                "before taken",
                "all",
                all(seen),
                seen=sum(seen),
                done=len(seen),
            )
        )
    return rows


def _matrix_table(cells: list[str], pieces: list[dict[str, Any]]) -> Table:
    lines = [
        (
            name,
            "equal" if all(piece["same"]) else "NOT EQUAL",
            ", ".join(f"{other} {value:.1e}" for other, value in piece["others"].items()),
        )
        for name, piece in zip(cells, pieces, strict=True)
    ]
    lines += [(str(cell), "-", why) for cell in CELLS if (why := cell.why_not()) is not None]
    columns = ("saved under", "same plan", "others, worst relative difference of a loss")
    return Table(title="Saved once, gone on with elsewhere", columns=columns, rows=lines)


def _kill_table(pieces: list[dict[str, Any]]) -> Table:
    lines = [
        (
            piece["what"],
            "waited for" if piece["waits"] else "beside the steps",
            str(piece["lost"]),
            "equal" if all(piece["same"]) else "NOT EQUAL",
        )
        for piece in pieces
    ]
    columns = ("killed", "checkpoints written", "steps lost", "losses after the resume")
    return Table(title="Ranks killed", columns=columns, rows=lines)


ITEM = Item(
    name="checkpoints",
    shows="Runs go on from checkpoints, under any plan, after kills, past any damage.",
    target=(
        "bit-equal under the same plan, within 1e-5 under others; a kill loses at most one "
        "interval; 300 bit flips and 60 truncations all told of."
    ),
    full_target=(
        "bit-equal under the same plan, within 1e-5 under others; a kill loses at most one "
        "interval; 1,000 bit flips and 200 truncations all told of."
    ),
    run=run,
    reads=(*EVERYTHING, "tests/support/ranks/checkpoint_files.py",
    "tests/support/ranks/checkpoint_matrix.py",
           "tests/support/generators/family_cases.py", "tests/support/generators/plan_cases.py",
           "tests/support/ranks/rank_pools.py"),
)  # fmt: skip
