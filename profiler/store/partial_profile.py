"""Results of an interrupted measurement, from which the next one resumes.

A file beside the profiles, named by fingerprint and ranks: the rows of all finished stages, and of
the kernels so far, as a profile, and the names of those stages. It is removed when the profile is
complete. One of another kind of sweep, or an unreadable one, is ignored.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...spec.cluster.machine_profile import MachineProfile
from ...spec.codec import from_json, read_text
from ...spec.errors import InputError
from .profiles import profile_folder, save_document


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialProfile:
    """Rows so far and finished stages of one kind of sweep.

    ``coarse`` and ``storage`` identify the sweep.
    """

    profile: MachineProfile
    finished: tuple[str, ...]
    coarse: bool
    storage: str = ""


def partial_path(profile: MachineProfile) -> Path:
    """File of the partial results of such a profile."""
    return profile_folder() / "partial" / f"{profile.fingerprint}-{profile.ranks}.json"


def load_partial(empty: MachineProfile, coarse: bool, storage: str) -> PartialProfile | None:
    """Partial results of the same machine, ranks and kind of sweep."""
    path = partial_path(empty)
    try:
        if not path.exists():
            return None
        partial = from_json(PartialProfile, read_text(path, "an unfinished profile"), str(path))
    except (InputError, OSError):
        return None
    identity = (partial.profile.fingerprint, partial.profile.ranks, partial.profile.device)
    same_machine = identity == (empty.fingerprint, empty.ranks, empty.device)
    return (
        partial if same_machine and (partial.coarse, partial.storage) == (coarse, storage) else None
    )


def save_partial(partial: PartialProfile) -> None:
    """Write the results so far, completely or not at all.

    Where nothing can be written, an interrupted measurement begins anew.
    """
    with suppress(InputError):
        save_document(partial_path(partial.profile), partial)


def remove_partial(profile: MachineProfile) -> None:
    """Remove the partial results of a complete profile."""
    with suppress(OSError):
        partial_path(profile).unlink(missing_ok=True)
