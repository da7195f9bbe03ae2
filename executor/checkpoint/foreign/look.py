"""The kind of a checkpoint, found by looking into its folder; loads no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard

from ....spec.errors import InputError
from ..storage.folders import MANIFEST, step_folders
from ..storage.paths import CheckpointPath
from .safetensors_files import SAFETENSORS, SUFFIX, read_safetensors
from .source import ForeignSource
from .torch_distributed import MEGATRON, MEGATRON_KIND, METADATA, TORCH, read_torch_distributed

CONFIG = "config.json"
ALLOWED = (
    "a folder with .metadata (torch distributed, Megatron-core), safetensors files, or a "
    "manifest.json of ours"
)
_REFUSED = (
    ("*zero_pp_rank_*", "DeepSpeed's ZeRO files", "a conversion by its zero_to_fp32.py"),
    ("mp_rank_*", "DeepSpeed's files", "a conversion by its zero_to_fp32.py"),
    ("pytorch_model*.bin", "pickled weights", "save_pretrained(…, safe_serialization=True)"),
    ("*.pt", "pickled weights", "torch.distributed.checkpoint.save, or safetensors"),
)


def is_distributed(folder: CheckpointPath) -> bool:
    """True for torch's distributed checkpoint, and for one that is being written."""
    return (
        (folder / METADATA).exists()
        or (folder / MEGATRON_KIND).exists()
        or any(folder.glob("*.distcp"))
    )


def kind_of(folder: CheckpointPath) -> str:
    """Kind of another framework's checkpoint, by the names of its files alone."""
    if not is_distributed(folder):
        return SAFETENSORS
    return MEGATRON if (folder / MEGATRON_KIND).exists() else TORCH


def is_ours(folder: CheckpointPath) -> bool:
    """True for a checkpoint of ours, and for a folder of them."""
    return (folder / MANIFEST).exists() or bool(step_folders(folder))


def is_foreign(folder: CheckpointPath) -> bool:
    """True for what another framework wrote, read or refused by name."""
    if not folder.is_dir() or is_ours(folder):
        return False
    patterns = (f"*{SUFFIX}", *(pattern for pattern, *_ in _REFUSED))
    return is_distributed(folder) or any(any(folder.glob(pattern)) for pattern in patterns)


def is_transformers(folder: CheckpointPath) -> TypeGuard[Path]:
    """True for a folder of transformers here, and for what is no checkpoint at all.

    By URL one is read as any other folder of safetensors is.
    """
    return (
        isinstance(folder, Path)
        and not is_ours(folder)
        and not is_distributed(folder)
        and ((folder / CONFIG).is_file() or not any(folder.glob(f"*{SUFFIX}")))
    )


def look(folder: CheckpointPath, where: str) -> ForeignSource:
    """The source in a folder; ``where`` names the folder in errors.

    Raises:
        InputError: no checkpoint, one that is being written, or of a kind that is not read.
    """
    if not folder.is_dir():
        raise InputError(where, str(folder), ALLOWED)
    if (folder / METADATA).exists():
        return read_torch_distributed(folder)
    if any(folder.glob("*.distcp")):
        given = f"{folder}, which has no {METADATA}: it is being written, or was not finished"
        raise InputError(where, given, "a whole checkpoint")
    if any(folder.glob(f"*{SUFFIX}")):
        return read_safetensors(folder)
    for pattern, given, fix in _REFUSED:
        if any(folder.glob(pattern)):
            raise InputError(where, f"{given} in {folder}", fix)
    steps = sorted(p.name for p in folder.iterdir() if p.is_dir() and (p / METADATA).exists())
    nearest = str(folder / steps[-1]) if steps else None
    raise InputError(where, str(folder), ALLOWED, nearest)
