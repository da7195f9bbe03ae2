"""The folders of checkpoints: their names, how one is committed, and which are dropped.

A checkpoint is written into a folder whose name begins with a dot and ends in a token of the run;
it is renamed when every byte of it is on the disk. What carries the final name is whole.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ...spec.files import flush_to_disk

STEP_NAME = re.compile(r"step-(\d{8,})")
UNFINISHED = re.compile(r"\.step-\d{8,}\..+")


def step_folder(root: Path, step: int) -> Path:
    """``ROOT/step-00000020``."""
    return root / f"step-{step:08d}"


def unfinished_folder(root: Path, step: int, token: str) -> Path:
    """Where the checkpoint of a step is written."""
    return root / f".step-{step:08d}.{token}"


def step_of(folder: Path) -> int | None:
    """The step in a folder's name; None for any other folder."""
    found = STEP_NAME.fullmatch(folder.name)
    return None if found is None else int(found[1])


def step_folders(root: Path) -> list[Path]:
    """The folders of committed checkpoints, the newest first; none where ``root`` is missing."""
    try:
        found = [path for path in root.iterdir() if step_of(path) is not None and path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda path: step_of(path) or 0, reverse=True)


def commit(unfinished: Path, final: Path) -> None:
    """Give a folder that is whole its final name; one that has it already makes way."""
    flush_to_disk(unfinished)
    if final.exists():
        replaced = unfinished.with_name(f"{unfinished.name}.replaced")
        final.rename(replaced)
        unfinished.rename(final)
        shutil.rmtree(replaced, ignore_errors=True)
    else:
        unfinished.rename(final)
    flush_to_disk(final.parent)


def sweep(root: Path) -> None:
    """Remove what runs that ended left unfinished."""
    for path in root.iterdir():
        if UNFINISHED.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def prune(root: Path, newest: int, keep: int, protected: Path | None = None) -> None:
    """Keep ``keep`` checkpoints of steps up to ``newest``; later ones are another run's.

    Args:
        root: folder of checkpoints.
        newest: step of the one that was just committed.
        keep: how many stay.
        protected: one that stays in any case.
    """
    older = [path for path in step_folders(root) if (step_of(path) or 0) <= newest]
    for path in older[keep:]:
        if protected is not None and path.resolve() == protected.resolve():
            continue
        hidden = path.with_name(f".{path.name}.dropped")
        path.rename(hidden)  # a removal that is cut short leaves no half checkpoint
        shutil.rmtree(hidden, ignore_errors=True)
