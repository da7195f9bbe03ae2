"""``plan profile``: measure this machine and keep what was measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..spec.errors import InputError
from .cli_execute import phases
from .cli_output import ProgressLine, check_targets, emit, note

if TYPE_CHECKING:
    from rich.console import Console

    from ..spec.profile import MachineProfile

DEFAULT_BUDGET_S = 120.0


def profile_command(given: dict[str, Any]) -> None:
    """Measure this machine.

    Raises:
        InputError: another cluster than this machine.
        RunError: a rank failed.
    """
    from ..profiler.store import save_profile
    from ..profiler.sweep import measure
    from ..spec.codec import to_document

    check_targets(json=given["json_target"])
    ranks = _ranks(given["cluster"] or "local")
    budget_s = given["budget"] or DEFAULT_BUDGET_S
    note(f"measuring {ranks} ranks for up to {budget_s:g} s; leave the machine alone meanwhile")
    with ProgressLine("measuring", "rows") as line:
        profile = measure(budget_s, ranks, phases(line))
    path = str(save_profile(profile))

    def show(out: Console) -> None:
        _print(out, profile, path)

    emit({"path": path, "profile": to_document(profile)}, given["json_target"], show)


def _ranks(text: str) -> int:
    from ..datasets.catalogue.clusters import parse_cluster
    from .this_machine import require_room

    if not re.fullmatch(r"local(:[^:]*)?", text.strip(), re.IGNORECASE):
        raise InputError("--cluster", text, "local or local:N, this machine", "local")
    ranks = parse_cluster(text).cluster.device_count
    require_room(ranks, "--cluster")
    return ranks


def _print(out: Console, profile: MachineProfile, path: str) -> None:
    out.print(f"measured {profile.ranks} ranks in {profile.duration_s:.0f} s: {path}")
    facts = ", ".join(f"{name} {value}" for name, value in profile.machine.items())
    out.print(f"machine {profile.fingerprint}: {facts}")
    best = max((row.flops / row.time_s for row in profile.kernels if row.flops), default=0.0)
    out.print(
        f"{len(profile.kernels)} kernels (fastest {best / 1e9:.3g} GFLOP/s a rank), "
        f"{len(profile.collectives)} collectives"
    )
    out.print("next: plan --execute | plan --calibration none, to see what it changes")
