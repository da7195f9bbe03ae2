"""Calibrations stored by ``plan calibrate``, used by ``--calibration NAME``.

One JSON file each under ``$XDG_DATA_HOME/shardwright/calibrations``, written atomically. A
calibration is used only for the device, stack and product format it was fitted for, and under the
version of the pricing that it was fitted to. Where the service computes for an owner, calibrations
that the owner stored over HTTP come first (``lending``), from its database, never from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from ...costmodel.pricing.version import PRICING_VERSION
from ...datasets.catalogue.stack import canonical_stack
from ...profiler.store.profiles import newest_profile, profile_folder, save_document
from ...spec.cluster.calibration import Calibration, CalibrationScope
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.measured import CorrectedProfile, Measured, calibration_of, profile_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.codec import content_hash, from_json, read_text
from ...spec.errors import InputError, nearest_name
from ...spec.workload.workload import DtypeRecord

CALIBRATION_FLAG = "--calibration"
HASH_PREFIX_LENGTH = 19
"""``sha256:`` and twelve digits."""
HASH_MARK = "@"
"""Between a name and the hash that its calibration must have."""


class CalibrationNeededError(Exception):
    """A calibration is named whose owner was not looked up yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class LentCalibrations:
    """Calibrations of the owner for whom the service computes.

    ``names`` lists all, ``by_name`` holds those looked up; ``looked_up`` is False until then.
    """

    names: tuple[str, ...] = ()
    by_name: Mapping[str, Calibration] = field(default_factory=dict)
    looked_up: bool = True


_LENT: ContextVar[LentCalibrations | None] = ContextVar("lent", default=None)


@contextmanager
def lending(lent: LentCalibrations) -> Iterator[None]:
    """Prefer these calibrations in the block, in this thread only."""
    token = _LENT.set(lent)
    try:
        yield
    finally:
        _LENT.reset(token)


def is_current(calibration: Calibration) -> bool:
    """True for a calibration fitted to this version's prices."""
    return calibration.pricing_version == PRICING_VERSION


def lent_calibration(name: str | None) -> Calibration | None:
    """The lent calibration of a name, if any.

    Raises:
        CalibrationNeededError: it is not looked up yet.
    """
    lent = _LENT.get()
    if name in (None, "none") or lent is None:
        return None
    plain = str(name).partition(HASH_MARK)[0]
    if not lent.looked_up:
        raise CalibrationNeededError(plain)
    return lent.by_name.get(plain)


def calibration_folder() -> Path:
    """The folder of calibrations; it need not exist."""
    return profile_folder().parent / "calibrations"


def stored_names() -> list[str]:
    """Names of the stored calibrations, sorted."""
    return sorted(path.stem for path in calibration_folder().glob("*.json"))


def save_calibration(calibration: Calibration) -> Path:
    """Write a calibration, replacing one of its name; return its path.

    Raises:
        InputError: the folder cannot be written.
    """
    return save_document(calibration_folder() / f"{calibration.name}.json", calibration)


def load_calibration(name: str) -> Calibration:
    """A stored calibration that holds for this version's prices.

    ``NAME@HASH``, as reports name it, is refused once the name holds another.

    Raises:
        InputError: none of that name, a damaged file, another one, or one fitted to other prices.
        CalibrationNeededError: the service has to look for it first.
    """
    name, mark, digest = name.partition(HASH_MARK)
    calibration = read_calibration(name)
    stored = content_hash(calibration)
    if mark and not stored.startswith(digest):
        given, allowed = f"{name} {digest}", f"the one stored now, {stored[:HASH_PREFIX_LENGTH]}"
        raise InputError(CALIBRATION_FLAG, given, allowed, f"{CALIBRATION_FLAG} {name}")
    if not is_current(calibration):
        made = f"{name}, of version {calibration.pricing_version} of the pricing"
        allowed = f"one of version {PRICING_VERSION}; fit it to its runs again"
        raise InputError(CALIBRATION_FLAG, made, allowed, f"plan calibrate --name {name}")
    return calibration


def read_calibration(name: str) -> Calibration:
    """A stored calibration, fitted to whichever version's prices.

    Raises:
        InputError: none of that name, or a damaged file.
        CalibrationNeededError: the service has to look for it first.
    """
    if (lent := lent_calibration(name)) is not None:
        return lent
    stored = stored_names()
    if name not in stored:
        lent_to = _LENT.get()
        names = sorted({*stored, *(lent_to.names if lent_to else ())})
        allowed = ", ".join(["none", *names]) + ("" if names else " (plan calibrate stores one)")
        raise InputError(CALIBRATION_FLAG, name, allowed, nearest_name(name, ["none", *names]))
    path = calibration_folder() / f"{name}.json"
    return from_json(Calibration, read_text(path, str(path)), str(path))


def calibration_for(
    name: str, cluster: ClusterSpec, stack: StackSpec, dtype: DtypeRecord
) -> Calibration | CorrectedProfile:
    """A stored calibration for these devices, this stack and these products.

    One that corrects a machine's profile comes with the profile.

    Raises:
        InputError: none of that name, one for something else, or one whose profile is gone.
    """
    calibration = load_calibration(name)
    devices = sorted({group.device for group in cluster.groups})
    if devices != [calibration.device]:
        raise InputError(
            CALIBRATION_FLAG,
            name,
            f"one fitted on {', '.join(devices)}, not on {calibration.device}",
        )
    if stack.name != calibration_scope(calibration).stack:
        raise InputError(
            CALIBRATION_FLAG, name, f"one fitted with {stack.name}, not with {calibration.stack}"
        )
    if calibration.products not in ("", dtype.products):
        allowed = f"one fitted to {dtype.products} products, not to {calibration.products}"
        raise InputError(CALIBRATION_FLAG, name, allowed)
    if not calibration.profile:
        return calibration
    profile = newest_profile(cluster.device_count, calibration.device)
    if profile is None or profile.fingerprint != calibration.profile:
        here = "none of this machine" if profile is None else profile.fingerprint
        allowed = f"one on this machine's profile ({here}), not on profile {calibration.profile}"
        raise InputError(CALIBRATION_FLAG, name, allowed)
    return CorrectedProfile(profile=profile, calibration=calibration)


def calibration_scope(calibration: Calibration) -> CalibrationScope:
    """The scope of a calibration, its stack by today's name."""
    return calibration.scope._replace(stack=canonical_stack(calibration.stack))


def measured_name(measured: Measured | None) -> str:
    """Name of measurements in a report; a calibration's with its hash."""
    if measured is None:
        return "none"
    names = []
    if (calibration := calibration_of(measured)) is not None:
        names.append(f"{calibration.name} {content_hash(calibration)[:HASH_PREFIX_LENGTH]}")
    if (profile := profile_of(measured)) is not None:
        names.append(f"profile {profile.fingerprint}")
    return " on ".join(names)
