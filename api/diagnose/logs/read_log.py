"""A training log of any kind, found by its step lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import TextIO

from ....spec.errors import InputError
from . import deepspeed, megatron, torchtitan, trainer
from .run_log import LogReader, RunLog

READERS: Mapping[str, LogReader] = {
    "megatron": megatron.read,
    "torchtitan": torchtitan.read,
    "deepspeed": deepspeed.read,
    "trainer": trainer.read,
}
"""In the order in which they are asked: Megatron-DeepSpeed prints lines of both."""
TITLES = {
    "megatron": "Megatron-LM",
    "torchtitan": "torchtitan",
    "deepspeed": "DeepSpeed",
    "trainer": "transformers' Trainer",
}
MOST_BYTES = 2 * 2**30
ALLOWED = (
    "step times: Megatron-LM's 'elapsed time per iteration (ms)', torchtitan's 'tps', DeepSpeed's "
    "'CurrSamplesPerSec' (wall_clock_breakdown or steps_per_print), Trainer's progress bar"
)


def read_log(path: str) -> RunLog:
    """Read a log.

    Raises:
        InputError: no such file, a folder, too large, or no step times in it.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        raise InputError(path, "a folder", "a training log")
    try:
        size = file.stat().st_size
        if size > MOST_BYTES:
            raise InputError(path, f"{size} bytes", f"a log of at most {MOST_BYTES} bytes")
        return _read(lambda: file.open(encoding="utf-8", errors="replace"), path)
    except OSError as error:
        raise InputError(path, error.strerror or "unreadable", "a training log") from None


def log_from_text(text: str, where: str) -> RunLog:
    """Read a log's text; ``where`` names it in errors.

    Raises:
        InputError: no step times in it.
    """
    return _read(lambda: StringIO(text), where)


def _read(open_lines: Callable[[], TextIO], where: str) -> RunLog:
    for reader in READERS.values():
        with open_lines() as lines:
            found = reader(lines)
        if found.steps:
            return found
    raise InputError(where, "no step times", ALLOWED, "--measured-step 1.5 beside a configuration")
