"""Names, commits and pruning of checkpoint folders.

A checkpoint is written to a folder named with a leading dot and a token of the run, and renamed
once every byte is on disk: a final name means a complete checkpoint. A far storage has no rename:
there it is written under its final name, and the manifest, written last, makes it complete.
"""

from __future__ import annotations

import re
from typing import cast

from ....spec.errors import InputError
from ....spec.files import flush_to_disk
from .far_path import FarPath
from .paths import AnyPath, CheckpointPath, remove_tree

MANIFEST = "manifest.json"
STEP_NAME = re.compile(r"step-(\d{8,})")
UNFINISHED = re.compile(r"\.step-\d{8,}\..+")


def step_folder(root: AnyPath, step: int) -> AnyPath:
    """``ROOT/step-00000020``."""
    return cast("AnyPath", root / f"step-{step:08d}")


def unfinished_folder(root: AnyPath, step: int, token: str) -> AnyPath:
    """Folder in which a step's checkpoint is written."""
    if isinstance(root, FarPath):
        return step_folder(root, step)
    return cast("AnyPath", root / f".step-{step:08d}.{token}")


def step_of(folder: CheckpointPath) -> int | None:
    """Step in a folder's name; None for any other folder."""
    match = STEP_NAME.fullmatch(folder.name)
    return None if match is None else int(match[1])


def step_folders(root: AnyPath) -> list[AnyPath]:
    """Folders of committed checkpoints, newest first; none without ``root``.

    Raises:
        InputError: the folder is another user's, or its storage does not answer.
    """
    try:
        folders = [
            cast("AnyPath", path)
            for path in root.iterdir()
            if step_of(path) is not None and _is_whole(path)
        ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as error:
        raise InputError(str(root), error.strerror, "a folder that this user may read") from None
    except OSError as error:
        raise InputError(str(root), str(error), "a folder that can be read") from None
    return sorted(folders, key=lambda path: step_of(path) or 0, reverse=True)


def _is_whole(folder: CheckpointPath) -> bool:
    return (folder / MANIFEST).exists() if isinstance(folder, FarPath) else folder.is_dir()


def is_committed(folder: CheckpointPath, unfinished: CheckpointPath) -> bool:
    """True once rank 0 has committed a checkpoint, or has given it up."""
    return _is_whole(folder) if isinstance(folder, FarPath) else not unfinished.exists()


def commit(unfinished: CheckpointPath, final: CheckpointPath) -> None:
    """Give a complete folder its final name, replacing any earlier one."""
    if isinstance(unfinished, FarPath) or isinstance(final, FarPath):
        return  # the manifest was the commit
    flush_to_disk(unfinished)
    if final.exists():
        replaced = unfinished.with_name(f"{unfinished.name}.replaced")
        final.rename(replaced)
        unfinished.rename(final)
        remove_tree(replaced)
    else:
        unfinished.rename(final)
    flush_to_disk(final.parent)


def drop(path: CheckpointPath) -> None:
    """Remove a checkpoint; a removal that is cut short leaves no half one."""
    if isinstance(path, FarPath):
        (path / MANIFEST).unlink(missing_ok=True)
        path.remove_tree()
        return
    hidden = path.with_name(f".{path.name}.dropped")
    path.rename(hidden)
    remove_tree(hidden)


def sweep(root: CheckpointPath) -> None:
    """Remove unfinished folders of ended runs."""
    for path in root.iterdir():
        far = isinstance(path, FarPath) and step_of(path) is not None
        if UNFINISHED.fullmatch(path.name) or (far and not _is_whole(path)):
            remove_tree(path)


def prune(
    root: CheckpointPath, newest: int, keep: int, protected: CheckpointPath | None = None
) -> None:
    """Keep ``keep`` checkpoints up to step ``newest``.

    Later steps belong to another run. ``protected`` always stays.
    """
    older = [path for path in step_folders(root) if (step_of(path) or 0) <= newest]
    for path in older[keep:]:
        if protected is None or path.resolve() != protected.resolve():
            drop(path)
