"""Shipped measurements of our own: one profile of ``plan profile`` a device.

A file names the device, its driver and library versions in ``machine``, and every row has its
spread. They are evidence and teaching material; a plan is priced by a profile only on the machine
that it was taken on, so none of these ever replaces another machine's.
"""

from __future__ import annotations

from pathlib import Path

from ...spec.cluster.machine_profile import MachineProfile
from ...spec.codec import dump_pretty, from_json, read_text, to_document, write_atomically
from ...spec.errors import InputError

FOLDER = Path(__file__).parent / "profiles"
REQUIRED_FACTS = ("torch", "cuda", "driver")
"""Keys of ``machine`` that a GPU's profile needs before it is shipped."""
UNKNOWN_VALUES = frozenset({"", "unknown", "none", "not installed"})


def shipped_profiles(folder: Path = FOLDER) -> tuple[MachineProfile, ...]:
    """Every shipped profile, by file name.

    Raises:
        InputError: a file that is no profile, or is not named by its content.
    """
    return tuple(_read(path) for path in sorted(folder.glob("*.json")))


def ship_profile(profile: MachineProfile, folder: Path = FOLDER) -> Path:
    """Write a shipped profile over an older one of the same devices.

    Raises:
        InputError: a core's profile, or one without its software versions.
    """
    if profile.device == "cpu":
        raise InputError("profile", "cpu", "a GPU's: a core's says nothing of other machines")
    unknown = [name for name in REQUIRED_FACTS if profile.machine.get(name, "") in UNKNOWN_VALUES]
    if unknown:
        raise InputError("profile: machine", ", ".join(unknown), "the version of each")
    path = folder / _name(profile)
    write_atomically(path, dump_pretty(to_document(profile)))
    return path


def _name(profile: MachineProfile) -> str:
    return f"{profile.device}-{profile.ranks}.json"


def _read(path: Path) -> MachineProfile:
    profile = from_json(MachineProfile, read_text(path, "a profile"), str(path))
    if path.name != _name(profile):
        raise InputError(str(path), path.name, _name(profile), _name(profile))
    return profile
