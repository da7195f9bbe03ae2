"""What an interrupted measurement had finished, so that the next one goes on from there.

A file beside the profiles, named by fingerprint and ranks: the rows of all finished stages, and of
kernels as far as they came, as the profile that they make so far, and the names of those stages.
It is removed when the profile is complete. One of another kind of sweep, or one that cannot be
read, is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...spec.cluster.machine_profile import MachineProfile
from ...spec.codec import from_json, read_text
from ...spec.errors import InputError
from .profiles import profile_folder, save_document


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialProfile:
    """Rows so far, the finished stages; ``coarse`` and ``storage`` say which sweep they are of."""

    profile: MachineProfile
    finished: tuple[str, ...]
    coarse: bool
    storage: str = ""


def partial_path(profile: MachineProfile) -> Path:
    """Where the measurement of such a profile keeps what is finished."""
    return profile_folder() / "partial" / f"{profile.fingerprint}-{profile.ranks}.json"


def load_partial(empty: MachineProfile, coarse: bool, storage: str) -> PartialProfile | None:
    """What an earlier measurement of the same machine, ranks and kind of sweep had finished.

    Args:
        empty: the profile that is about to be measured, without rows.
        coarse: as :class:`PartialProfile`.
        storage: as :class:`PartialProfile`.
    """
    path = partial_path(empty)
    if not path.exists():
        return None
    try:
        found = from_json(PartialProfile, read_text(path, "an unfinished profile"), str(path))
    except InputError:
        return None
    of = (found.profile.fingerprint, found.profile.ranks, found.profile.device)
    same = of == (empty.fingerprint, empty.ranks, empty.device)
    return found if same and (found.coarse, found.storage) == (coarse, storage) else None


def save_partial(partial: PartialProfile) -> None:
    """Keep what is finished, whole or not at all."""
    save_document(partial_path(partial.profile), partial)


def remove_partial(profile: MachineProfile) -> None:
    """Forget it: the profile is complete."""
    partial_path(profile).unlink(missing_ok=True)
