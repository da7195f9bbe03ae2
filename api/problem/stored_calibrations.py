"""Stored calibrations: written by ``plan calibrate``, read wherever ``--calibration NAME`` prices.

One JSON file each under ``$XDG_DATA_HOME/shardwright/calibrations``, written whole or not at all. A
calibration is used only for the device, the stack and the format of products that it was fitted
for. Where the service computes for someone, the calibrations that were stored over HTTP under
their name come first (:func:`lending`); they lie in its database and never in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from ...profiler.store.profiles import newest_profile, profile_folder, save_document
from ...spec.cluster.calibration import Calibration
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.measured import CorrectedProfile, Measured, calibration_of, profile_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.codec import content_hash, from_json, read_text
from ...spec.errors import InputError, nearest_name
from ...spec.workload.workload import DtypeRecord

CALIBRATION_FLAG = "--calibration"
HASH_PREFIX_LENGTH = 19
"""``sha256:`` and twelve digits."""


class CalibrationNeededError(Exception):
    """A calibration is named, and it was not yet looked up whose it is."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class LentCalibrations:
    """Calibrations of someone whom the service computes for.

    ``known`` are the names of all of them, ``found`` those that were looked up by their names;
    ``looked_up`` is False as long as nothing was looked up.
    """

    known: tuple[str, ...] = ()
    found: Mapping[str, Calibration] = field(default_factory=dict)
    looked_up: bool = True


_LENT: ContextVar[LentCalibrations | None] = ContextVar("lent", default=None)


@contextmanager
def lending(lent: LentCalibrations) -> Iterator[None]:
    """Let names of calibrations mean these first, in the block and in this thread alone."""
    token = _LENT.set(lent)
    try:
        yield
    finally:
        _LENT.reset(token)


def lent_calibration(name: str | None) -> Calibration | None:
    """The calibration of that name if it is one that was lent.

    Raises:
        CalibrationNeededError: it is not known yet whether there is one.
    """
    lent = _LENT.get()
    if name in (None, "none") or lent is None:
        return None
    if not lent.looked_up:
        raise CalibrationNeededError(str(name))
    return lent.found.get(str(name))


def calibration_folder() -> Path:
    """The folder of calibrations; it need not exist."""
    return profile_folder().parent / "calibrations"


def stored_names() -> list[str]:
    """The names of the calibrations that are stored, sorted."""
    return sorted(path.stem for path in calibration_folder().glob("*.json"))


def save_calibration(calibration: Calibration) -> Path:
    """Write a calibration, in place of one of its name; returns its path.

    Raises:
        InputError: the folder cannot be written.
    """
    return save_document(calibration_folder() / f"{calibration.name}.json", calibration)


def load_calibration(name: str) -> Calibration:
    """A stored calibration.

    Raises:
        InputError: none of that name, or a file that is none.
        CalibrationNeededError: the service has to look for it first.
    """
    if (lent := lent_calibration(name)) is not None:
        return lent
    known = stored_names()
    if name not in known:
        others = _LENT.get()
        every = sorted({*known, *(others.known if others else ())})
        allowed = ", ".join(["none", *every]) + ("" if every else " (plan calibrate stores one)")
        raise InputError(CALIBRATION_FLAG, name, allowed, nearest_name(name, ["none", *every]))
    path = calibration_folder() / f"{name}.json"
    return from_json(Calibration, read_text(path, str(path)), str(path))


def calibration_for(
    name: str, cluster: ClusterSpec, stack: StackSpec, dtype: DtypeRecord
) -> Calibration | CorrectedProfile:
    """A stored calibration, if it is for these devices, this stack and these products.

    One that corrects a machine's profile comes with it.

    Raises:
        InputError: it is not, there is none of that name, or its profile is gone.
    """
    found = load_calibration(name)
    devices = sorted({group.device for group in cluster.groups})
    if devices != [found.device]:
        raise InputError(
            CALIBRATION_FLAG, name, f"one fitted on {', '.join(devices)}, not on {found.device}"
        )
    if stack.name != found.stack:
        raise InputError(
            CALIBRATION_FLAG, name, f"one fitted with {stack.name}, not with {found.stack}"
        )
    if found.products not in ("", dtype.products):
        allowed = f"one fitted to {dtype.products} products, not to {found.products}"
        raise InputError(CALIBRATION_FLAG, name, allowed)
    if not found.profile:
        return found
    profile = newest_profile(cluster.device_count, found.device)
    if profile is None or profile.fingerprint != found.profile:
        here = "none of this machine" if profile is None else profile.fingerprint
        allowed = f"one on this machine's profile ({here}), not on profile {found.profile}"
        raise InputError(CALIBRATION_FLAG, name, allowed)
    return CorrectedProfile(profile=profile, calibration=found)


def measured_name(measured: Measured | None) -> str:
    """How a report names what was measured: a calibration by its hash too."""
    if measured is None:
        return "none"
    names = []
    if (calibration := calibration_of(measured)) is not None:
        names.append(f"{calibration.name} {content_hash(calibration)[:HASH_PREFIX_LENGTH]}")
    if (profile := profile_of(measured)) is not None:
        names.append(f"profile {profile.fingerprint}")
    return " on ".join(names)
