"""The profile of a run from Python: measured first on cores that were not profiled."""

from __future__ import annotations

from ...datasets.catalogue.device import CPU
from ...spec.cluster.machine_profile import MachineProfile
from ...spec.report.report import Report
from ..problem.profile_notes import is_unprofiled


def measured_cores(report: Report) -> MachineProfile | None:
    """This machine's profile for a run, measured for some 20 s where there is none.

    Args:
        report: of a plan that no measurement priced.

    Returns:
        None if the plan is not for cores, or was to be priced without a profile.

    Raises:
        RunError: a rank failed while the machine was measured.
    """
    from ..execution.execution import ensure_profile

    cluster = report.plan.cluster
    if cluster.groups[0].device != CPU or not is_unprofiled(report.assumptions):
        return None
    return ensure_profile(cluster.device_count, lambda event: None)
