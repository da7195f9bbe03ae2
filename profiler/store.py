"""Where measured profiles live, and which of them is of this machine.

A profile is a JSON file under ``$XDG_DATA_HOME/shardwright/profiles``, named by the machine's
fingerprint and the time it was taken. Only a profile whose fingerprint is this machine's is
ever used: processor, cores, memory, interpreter and torch version, without importing torch.
"""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

from ..datasets.catalogue.local import core_count, memory_bytes, processor
from ..spec.codec import canonical_json, from_json, read_text, write_atomically
from ..spec.errors import InputError
from ..spec.profile import MachineProfile
from ..spec.units import GIB


def machine_facts() -> dict[str, str]:
    """What identifies this machine to a profile, in readable form."""
    found = processor()
    return {
        "processor": f"{found.vendor} {found.family} {found.model}".strip(),
        "cores": str(core_count()),
        "memory_gib": str(round(memory_bytes() / GIB)),
        "python": platform.python_version(),
        "torch": _version("torch"),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def fingerprint() -> str:
    """Short hash of :func:`machine_facts`."""
    return hashlib.sha256(canonical_json(machine_facts()).encode()).hexdigest()[:16]


def profile_folder() -> Path:
    """The folder of profiles; it need not exist."""
    root = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(root) / "shardwright" / "profiles"


def save_profile(profile: MachineProfile) -> Path:
    """Write a profile whole or not at all; returns its path."""
    folder = profile_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), error.strerror or str(error), "a writable folder") from None
    stamp = profile.measured_at.replace(":", "").replace("-", "")
    path = folder / f"{profile.fingerprint}-{profile.ranks}-{stamp}.json"
    write_atomically(path, canonical_json(profile) + "\n")
    return path


def newest_profile(ranks: int) -> MachineProfile | None:
    """The newest profile of this machine: for ``ranks`` ranks if there is one, else for any."""
    folder = profile_folder()
    if not folder.is_dir():
        return None
    mine = sorted(folder.glob(f"{fingerprint()}-*.json"), key=lambda p: p.name.split("-")[-1])
    loaded = [from_json(MachineProfile, read_text(p, "a profile"), str(p)) for p in mine]
    same = [profile for profile in loaded if profile.ranks == ranks]
    usable = same or loaded
    return usable[-1] if usable else None
