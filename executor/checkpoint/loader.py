"""Finding the newest good checkpoint, and filling an engine from it under whatever plan it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from ...spec.errors import InputError, RunError
from ..launch.consistency import gather_json
from ..launch.progress import PROGRESS
from .folders import step_folders, step_of
from .integrity import Damage, damages, manifest_damage
from .manifest import DamagedManifestError, Manifest, read_manifest
from .reader import CheckpointReader
from .tensor_slices import SliceLoadPlanner, TensorSlices

Notify = Callable[[str], None]
"""Says a line to whoever watches the run."""


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A good checkpoint."""

    folder: Path
    manifest: Manifest


def newest_valid(place: Path, rank: int, device: torch.device, tell: Notify) -> FoundCheckpoint:
    """The newest checkpoint whose every byte is what was written. Collective.

    Each rank looks at some of the files. A damaged checkpoint is told of, and the one before it is
    tried.

    Args:
        place: a folder of checkpoints, or one checkpoint's.
        rank: this rank.
        device: of the world's collectives.
        tell: says what is damaged, on rank 0.

    Raises:
        InputError: no checkpoint is there.
        RunError: none of them is good.
    """
    own = [place.name] if step_of(place) is not None else [p.name for p in step_folders(place)]
    root = place.parent if step_of(place) is not None else place
    names: list[str] = gather_json(own, device)[0]
    if not names:
        raise InputError("--resume", str(place), "a folder with checkpoints (step-00000020, …)")
    first: Damage | None = None
    for name in names:
        PROGRESS.mark(f"checking {name}")
        manifest, found = _inspected(root / name, rank, device)
        if manifest is not None and not found:
            return FoundCheckpoint(root / name, manifest)
        first = first or found[0]
        if rank == 0:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            tell(f"checkpoint {name} is damaged ({found[0]}{more}); trying the one before it")
    raise RunError(f"no good checkpoint in {place}: the newest, {names[0]}, is damaged ({first})")


def _inspected(
    folder: Path, rank: int, device: torch.device
) -> tuple[Manifest | None, list[Damage]]:
    """A checkpoint's manifest and all that is wrong with it, the same on every rank."""
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(folder)
        files = sorted(manifest.files)[rank :: dist.get_world_size()]
        own = damages(folder, manifest, files)
    except DamagedManifestError as error:
        own = [manifest_damage(error)]
    rows = [[damage.file, damage.tensor, damage.what] for damage in own]
    every = [Damage(*row) for rows in gather_json(rows, device) for row in rows]
    return manifest, list(dict.fromkeys(every))


def load_slices(found: FoundCheckpoint, parts: TensorSlices) -> None:
    """Copy a checkpoint's numbers into parts, however the saved ones were cut."""
    reader = CheckpointReader(found.folder, found.manifest)
    metadata = reader.read_metadata()
    planner = SliceLoadPlanner(parts, metadata)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    PROGRESS.mark(f"loading {found.folder.name}")
    plan = planner.finish_plan(planner.create_local_plan())
    reader.read_data(plan, planner).wait()
