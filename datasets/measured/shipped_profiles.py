"""Our own measurements that are shipped: one whole profile a device, as ``plan profile`` took it.

A file names the device, its driver and library versions in ``machine``, and every row has its
spread. They are evidence and teaching material; a plan is priced by a profile only on the machine
that it was taken on, so none of these is ever used in the place of another machine's.
"""

from __future__ import annotations

from pathlib import Path

from ...spec.cluster.machine_profile import MachineProfile
from ...spec.codec import dump_pretty, from_json, read_text, to_document, write_atomically
from ...spec.errors import InputError

FOLDER = Path(__file__).parent / "profiles"
NEEDED = ("torch", "cuda", "driver")
"""What ``machine`` says of a GPU's profile before it is shipped."""
UNTOLD = frozenset({"", "unknown", "none", "not installed"})


def shipped_profiles(folder: Path = FOLDER) -> tuple[MachineProfile, ...]:
    """Every shipped profile, by file name.

    Args:
        folder: where they lie (for tests).

    Raises:
        InputError: a file that is no profile, or is not named by its content.
    """
    return tuple(_read(path) for path in sorted(folder.glob("*.json")))


def ship_profile(profile: MachineProfile, folder: Path = FOLDER) -> Path:
    """Write a profile where the shipped ones lie, in place of an older one of the same devices.

    Args:
        profile: complete, of a GPU.
        folder: where (for tests).

    Raises:
        InputError: a core's profile, or one that does not say on what software it was taken.
    """
    if profile.device == "cpu":
        raise InputError("profile", "cpu", "a GPU's: a core's says nothing of other machines")
    untold = [name for name in NEEDED if profile.machine.get(name, "") in UNTOLD]
    if untold:
        raise InputError("profile: machine", ", ".join(untold), "the version of each")
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
