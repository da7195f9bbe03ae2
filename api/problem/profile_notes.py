"""Assumptions on the stored profiles of this machine's cores or GPUs.

Cores are always this machine's. GPUs of a kind that this machine has may be another machine's, so
their profile is used only if it has as many ranks as a cluster node has devices, with a note.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...datasets.catalogue.device import Device, devices
from ...datasets.catalogue.device_names import devices_called
from ...profiler.store.cuda_facts import cuda_models
from ...profiler.store.profiles import StoredProfiles
from ...spec.cluster.cluster_spec import DeviceGroup
from ...spec.report.report import Assumption

PROFILE_PATH = "calibration"
"""Path of the assumption that names the profile in use."""


def profile_notes(ranks: int, stored: StoredProfiles) -> list[Assumption]:
    """Notes on skipped core profiles, and on why none is used.

    Args:
        ranks: number of ranks at work at once.
        stored: profiles with as many ranks.
    """
    notes = _skipped(stored)
    if stored.profile is not None:
        return notes
    why = "this machine was not profiled (plan profile); rates are analytic"
    if stored.other_ranks:
        counts = " and ".join(str(count) for count in stored.other_ranks)
        why = (
            f"this machine was measured with {counts} ranks at work, not with {ranks} "
            f"(plan profile --cluster local:{ranks}); rates are analytic"
        )
    return [*notes, Assumption(path=PROFILE_PATH, value="none", why=why)]


def is_unprofiled(notes: Iterable[Assumption]) -> bool:
    """True if a profile was looked for and none was found; it was not if ``none`` was typed."""
    return any((note.path, note.value) == (PROFILE_PATH, "none") for note in notes)


def device_notes(model: Device, group: DeviceGroup, stored: StoredProfiles) -> list[Assumption]:
    """Notes on the GPU profile in use, or how to measure one.

    Args:
        model: the device of the cluster.
        group: its devices.
        stored: profiles with as many ranks as a node of the group has devices.
    """
    ranks, profile = group.devices_per_node, stored.profile
    notes = _skipped(stored)
    if profile is not None:
        why = f"a profile of this machine's {ranks} x {model.name} (plan profile)"
        if group.nodes > 1:
            why += "; the other nodes are taken to be like it, links between nodes analytic"
        value = f"profile {profile.fingerprint}"
        return [*notes, Assumption(path=PROFILE_PATH, value=value, why=why)]
    if any(model in devices_called(name, devices().values()) for name in cuda_models()):
        why = (
            f"this machine's {model.name} were not measured with {ranks} ranks at work "
            f"(plan profile --cluster {ranks}x{model.name}); rates are the catalogue's"
        )
        notes.append(Assumption(path=PROFILE_PATH, value="none", why=why))
    return notes


def _skipped(stored: StoredProfiles) -> list[Assumption]:
    if not stored.unreadable:
        return []
    why = "stored profiles that could not be read were skipped"
    value = "; ".join(stored.unreadable)
    return [Assumption(path="calibration.skipped", value=value, why=why)]
