"""Names, commits and pruning of checkpoint folders.

A checkpoint is written to a folder named with a leading dot and a token of the run, and renamed
once every byte is on disk: a final name means a complete checkpoint.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ...spec.errors import InputError
from ...spec.files import flush_to_disk

STEP_NAME = re.compile(r"step-(\d{8,})")
UNFINISHED = re.compile(r"\.step-\d{8,}\..+")


def step_folder(root: Path, step: int) -> Path:
    """``ROOT/step-00000020``."""
    return root / f"step-{step:08d}"


def unfinished_folder(root: Path, step: int, token: str) -> Path:
    """Folder in which a step's checkpoint is written."""
    return root / f".step-{step:08d}.{token}"


def step_of(folder: Path) -> int | None:
    """Step in a folder's name; None for any other folder."""
    match = STEP_NAME.fullmatch(folder.name)
    return None if match is None else int(match[1])


def step_folders(root: Path) -> list[Path]:
    """Folders of committed checkpoints, newest first; none without ``root``.

    Raises:
        InputError: the folder is another user's, and not readable.
    """
    try:
        folders = [path for path in root.iterdir() if step_of(path) is not None and path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as error:
        raise InputError(str(root), error.strerror, "a folder that this user may read") from None
    return sorted(folders, key=lambda path: step_of(path) or 0, reverse=True)


def commit(unfinished: Path, final: Path) -> None:
    """Give a complete folder its final name, replacing any earlier one."""
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
    """Remove unfinished folders of ended runs."""
    for path in root.iterdir():
        if UNFINISHED.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def prune(root: Path, newest: int, keep: int, protected: Path | None = None) -> None:
    """Keep ``keep`` checkpoints up to step ``newest``.

    Later steps belong to another run. ``protected`` always stays.
    """
    older = [path for path in step_folders(root) if (step_of(path) or 0) <= newest]
    for path in older[keep:]:
        if protected is not None and path.resolve() == protected.resolve():
            continue
        hidden = path.with_name(f".{path.name}.dropped")
        path.rename(hidden)  # a removal that is cut short leaves no half checkpoint
        shutil.rmtree(hidden, ignore_errors=True)
