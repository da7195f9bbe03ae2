"""Files of measured profiles, and the choice of this machine's.

A profile is a JSON file under ``$XDG_DATA_HOME/shardwright/profiles``, named by the machine's
fingerprint and the time it was taken. Only a profile with this machine's fingerprint is ever used:
processor, cores, memory, interpreter, and the versions of torch (found without importing it) and
of this package, to whose executor the host constants are fitted; for GPUs also those, their driver
and the libraries of their kernels. Nor is one of another number of ranks, which share the
machine's memory and links differently.
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ... import __version__
from ...datasets.catalogue.device import CPU
from ...datasets.catalogue.local import core_count, memory_bytes, processor
from ...spec.cluster.machine_profile import MachineProfile
from ...spec.codec import canonical_json, from_json, read_text, write_atomically
from ...spec.errors import InputError
from ...spec.units import GIB
from .cuda_facts import cuda_facts, installed

THREADS_PER_RANK = 1
"""Threads that the executor gives a rank."""
_UNSAVED: list[MachineProfile] = []
"""Profiles of this process that could not be written, the newest last."""


def machine_facts(device: str = CPU) -> dict[str, str]:
    """Identity of this machine for a profile, in readable form.

    Args:
        device: catalogue name of the ranks' device; for a core GPUs do not count.
    """
    facts = {
        **_hardware(),
        "python": platform.python_version(),
        "torch": installed("torch"),
        "shardwright": __version__,
        "threads_per_rank": str(THREADS_PER_RANK),
    }
    return facts if device == CPU else {**facts, "device": device, **cuda_facts()}


@cache
def _hardware() -> dict[str, str]:
    core = processor()
    return {
        "processor": f"{core.vendor} {core.family} {core.model}".strip(),
        "cores": str(core_count()),
        "memory_gib": str(round(memory_bytes() / GIB)),
    }


def fingerprint(device: str = CPU) -> str:
    """Short hash of :func:`machine_facts`."""
    text = canonical_json(machine_facts(device))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def profile_folder() -> Path:
    """The folder of profiles; it need not exist."""
    root = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(root) / "shardwright" / "profiles"


def save_profile(profile: MachineProfile) -> Path:
    """Write a profile completely or not at all; returns its path."""
    stamp = profile.measured_at.replace(":", "").replace("-", "")
    name = f"{profile.fingerprint}-{profile.ranks}-{stamp}.json"
    return save_document(profile_folder() / name, profile)


def keep_profile(profile: MachineProfile) -> str:
    """Write a profile, or keep it for this process where that cannot be done.

    Returns:
        Why it could not be written; empty if it was.
    """
    try:
        save_profile(profile)
    except InputError as error:
        _UNSAVED.append(profile)
        return str(error)
    return ""


def save_document(path: Path, noun: Any) -> Path:
    """Write a noun completely or not at all, making its folder.

    Returns its path.

    Raises:
        InputError: the folder cannot be written.
    """
    _make_folder(path.parent)
    write_atomically(path, canonical_json(noun) + "\n")
    return path


def require_writable_folder() -> None:
    """Make the folder of profiles, before any measurement.

    Raises:
        InputError: it cannot be made or written.
    """
    folder = profile_folder()
    _make_folder(folder)
    if not os.access(folder, os.W_OK):
        raise InputError(str(folder), "a folder that may not be written", "a writable folder")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), error.strerror or str(error), "a writable folder") from None


class StoredProfiles(NamedTuple):
    """Stored profiles of this machine.

    ``profile`` is the newest with the requested ranks, ``other_ranks`` the numbers of ranks of the
    others, ``unreadable`` one line for each newer file that had to be skipped, naming it.
    """

    profile: MachineProfile | None = None
    other_ranks: tuple[int, ...] = ()
    unreadable: tuple[str, ...] = ()


def newest_profile(ranks: int, device: str = CPU) -> MachineProfile | None:
    """This machine's newest readable profile with ``ranks`` ranks, if any."""
    return stored_profiles(ranks, device).profile


def stored_profiles(ranks: int, device: str = CPU) -> StoredProfiles:
    """Stored profiles of this machine's devices of a kind.

    Other machines' files stay closed. One that this process could not write counts as the newest.
    """
    for profile in reversed(_UNSAVED):
        if (profile.ranks, profile.device) == (ranks, device):
            return StoredProfiles(profile)
    if next(profile_folder().glob("*.json"), None) is None:
        return StoredProfiles()  # without reading the machine's facts
    identity = fingerprint(device)
    others: set[int] = set()
    candidates: list[tuple[str, Path]] = []
    for path in profile_folder().glob(f"{identity}-*.json"):
        rank_count, _, stamp = path.stem.removeprefix(f"{identity}-").partition("-")
        if rank_count == str(ranks):
            candidates.append((stamp, path))
        elif rank_count.isdecimal():
            others.add(int(rank_count))
    unreadable: list[str] = []
    for _, path in sorted(candidates, reverse=True):
        try:
            profile = _load(path, identity, ranks, device)
        except InputError as error:
            unreadable.append(str(error))
        else:
            return StoredProfiles(profile, tuple(sorted(others)), tuple(unreadable))
    return StoredProfiles(None, tuple(sorted(others)), tuple(unreadable))


def _load(path: Path, identity: str, ranks: int, device: str) -> MachineProfile:
    """A stored profile.

    Raises:
        InputError: unreadable, or not what its name says.
    """
    profile = from_json(MachineProfile, read_text(path, "a profile"), str(path))
    if (profile.fingerprint, profile.ranks, profile.device) != (identity, ranks, device):
        content = f"fingerprint {profile.fingerprint}, {profile.ranks} ranks on {profile.device}"
        raise InputError(str(path), content, "what the file's name says")
    return profile
