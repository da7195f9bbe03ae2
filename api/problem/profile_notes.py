"""What a prediction for this machine's cores or GPUs has to say of the stored profiles.

Cores always are this machine's. GPUs of a kind that this machine has may be other ones that a plan
is made for, so a profile of them is used only where it counts as many ranks as a node of the
cluster has devices, and its use is said.
"""

from __future__ import annotations

from ...datasets.catalogue.device import Device
from ...profiler.store.cuda_facts import cuda_models
from ...profiler.store.profiles import StoredProfiles
from ...spec.cluster.cluster_spec import DeviceGroup
from ...spec.report.report import Assumption


def profile_notes(ranks: int, stored: StoredProfiles) -> list[Assumption]:
    """Which stored profiles were skipped, and why none is used where none is.

    Args:
        ranks: how many ranks work at once.
        stored: profiles of so many; the one there is used.
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
    return [*notes, Assumption(path="calibration", value="none", why=why)]


def device_notes(found: Device, group: DeviceGroup, stored: StoredProfiles) -> list[Assumption]:
    """What is said of profiles of GPUs: that one is used and how far, or how to measure one.

    Args:
        found: the device of the cluster.
        group: its devices.
        stored: profiles of as many as a node of it has; the one there is used.
    """
    ranks, profile = group.devices_per_node, stored.profile
    notes = _skipped(stored)
    if profile is not None:
        why = f"a profile of this machine's {ranks} x {found.name} (plan profile)"
        if group.nodes > 1:
            why += "; the other nodes are taken to be like it, links between nodes analytic"
        value = f"profile {profile.fingerprint}"
        return [*notes, Assumption(path="calibration", value=value, why=why)]
    if any(found.family.casefold() in name.casefold() for name in cuda_models()):
        why = (
            f"this machine's {found.name} were not measured with {ranks} ranks at work "
            f"(plan profile --cluster {ranks}x{found.name}); rates are the catalogue's"
        )
        notes.append(Assumption(path="calibration", value="none", why=why))
    return notes


def _skipped(stored: StoredProfiles) -> list[Assumption]:
    """The files that could not be read, if any."""
    if not stored.unreadable:
        return []
    why = "stored profiles that could not be read were skipped"
    value = "; ".join(stored.unreadable)
    return [Assumption(path="calibration.skipped", value=value, why=why)]
