"""Checks of a folder to write; loads no torch."""

from __future__ import annotations

import os
from pathlib import Path

from ...spec.errors import InputError
from ...spec.plan.plan import Plan


def check_target(target: Path, where: str) -> None:
    """Refuse a folder that could not be committed at the end.

    ``where`` names it in errors, such as ``--save-hf``.

    Raises:
        InputError: it exists and is not an empty folder, or has no folder to stand in.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(where, str(target), "a folder that does not exist yet, or is empty")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise InputError(where, str(target), "a folder in one that exists and can be written")


def check_folder(folder: Path, where: str) -> None:
    """Refuse a folder that can be neither made nor written.

    Raises:
        InputError: a file, no folder to stand in, or one that may not be written.
    """
    holder = folder if folder.exists() else folder.parent
    if not holder.is_dir() or not os.access(holder, os.W_OK):
        raise InputError(where, str(folder), "a folder that can be written, or made in one that is")


def check_adapters(plan: Plan, init_from: object, save_hf: object) -> None:
    """Refuse to save adapters without a base checkpoint.

    Raises:
        InputError: adapters beside random weights.
    """
    if plan.workload.adapters is not None and init_from is None:
        allowed = "--init-from beside it: adapters belong to a checkpoint, which is not saved"
        raise InputError("--save-hf", str(save_hf), allowed)
