"""Search for the newest valid checkpoint, and loading under any plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import torch
import torch.distributed as dist

from ...spec.errors import InputError, RunError
from ..launch.consistency import gather_json
from ..launch.progress import PROGRESS
from .integrity import Damage, damages, manifest_damage, random_state_damage
from .manifest import DamagedManifestError, Manifest, read_manifest
from .reader import CheckpointReader
from .storage.folders import step_folders, step_of
from .storage.paths import CheckpointPath
from .tensor_slices import SliceLoadPlanner, TensorSlices

Notify = Callable[[str], None]
"""Report a line to whoever watches the run."""


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A valid checkpoint."""

    folder: CheckpointPath
    manifest: Manifest


Load = Callable[[FoundCheckpoint], list[Damage]]
"""Take a checkpoint over; the damage that this rank found meanwhile."""


def newest_valid(
    path: CheckpointPath, rank: int, device: torch.device, notify: Notify, load: Load | None = None
) -> FoundCheckpoint:
    """The newest checkpoint with every byte intact. Collective.

    Ranks share the verification, which ``load`` does while it takes the checkpoint over. Rank 0
    reports a damaged checkpoint to ``notify``, and the previous one is tried. ``device``: of the
    world's collectives.

    Raises:
        InputError: no checkpoint is there.
        RunError: none of them is valid.
    """
    local_names = [path.name] if step_of(path) is not None else [p.name for p in step_folders(path)]
    root = path.parent if step_of(path) is not None else path
    names: list[str] = gather_json(local_names, device)[0]
    if not names:
        raise InputError("--resume", str(path), "a folder with checkpoints (step-00000020, …)")
    first: Damage | None = None
    for name in names:
        PROGRESS.mark(f"checking {name}")
        manifest, damage = _inspected(root / name, rank, device, load)
        if manifest is not None and not damage:
            return FoundCheckpoint(root / name, manifest)
        first = first or damage[0]
        if rank == 0:
            more = f" and {len(damage) - 1} more" if len(damage) > 1 else ""
            verdict = f"{damage[0].verdict} ({damage[0]}{more})"
            notify(f"checkpoint {name} is {verdict}; trying the one before it")
    verdict = "damaged" if first is None else first.verdict
    raise RunError(f"no good checkpoint in {path}: the newest, {names[0]}, is {verdict} ({first})")


def _inspected(
    folder: CheckpointPath, rank: int, device: torch.device, load: Load | None
) -> tuple[Manifest | None, list[Damage]]:
    """A checkpoint's manifest and all its damage, the same on every rank."""
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(folder)
        local_damage = random_state_damage(manifest)
    except DamagedManifestError as error:
        local_damage = [manifest_damage(error)]
    found = _agreed(local_damage, device)
    if found or manifest is None:
        return manifest, found
    if load is not None:
        return manifest, _agreed(load(FoundCheckpoint(folder, manifest)), device)
    files = sorted(manifest.files)[rank :: dist.get_world_size()]
    return manifest, _agreed(damages(folder, manifest, files), device)


def _agreed(local_damage: list[Damage], device: torch.device) -> list[Damage]:
    """Damage that any rank found."""
    rows = [[*astuple(damage)] for damage in local_damage]
    all_damage = [Damage(*row) for rows in gather_json(rows, device) for row in rows]
    return list(dict.fromkeys(all_damage))


def load_slices(checkpoint: FoundCheckpoint, slices: TensorSlices) -> None:
    """Copy a checkpoint into slices, however the saved ones were split."""
    reader = CheckpointReader(checkpoint.folder, checkpoint.manifest)
    metadata = reader.read_metadata()
    planner = SliceLoadPlanner(slices, metadata)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    PROGRESS.mark(f"loading {checkpoint.folder.name}")
    plan = planner.finish_plan(planner.create_local_plan())
    reader.read_data(plan, planner).wait()
