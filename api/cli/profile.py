"""``plan profile``: measure this machine and store the profile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from .execute import absolute_or_url, profile_progress
from .output import ProgressLine, check_targets, emit, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from ...spec.cluster.machine_profile import MachineProfile
    from ...spec.report.work_items import Kernel

DEFAULT_BUDGET_S = 120.0
PROGRAMS_BUDGET_S = 20.0
"""With chosen programs, which take a third of it."""
DEFAULT_DEVICE_BUDGET_S = 270.0
"""On GPUs, whose libraries take long to load."""


def profile_command(flags: dict[str, Any]) -> None:
    """Measure this machine.

    Raises:
        InputError: another cluster than this machine, no folder to keep profiles in, or
            ``--model`` or ``--dry-run`` without ``--programs``.
        RunError: a rank failed.
    """
    from ...datasets.catalogue.device import CPU
    from ...profiler.store.profiles import require_writable_folder, save_profile
    from ...profiler.sweep import SweepTarget, measure
    from ...spec.codec import to_document

    check_targets(json=flags["json_target"])
    cluster = flags["cluster"] or "local"
    ranks, device = _ranks(cluster)
    programs = _programs(flags, cluster)
    if flags.get("dry_run"):
        _list_programs(programs, flags["json_target"])
        return
    require_writable_folder()
    default_s = DEFAULT_BUDGET_S if device == CPU else DEFAULT_DEVICE_BUDGET_S
    if programs:
        default_s = PROGRAMS_BUDGET_S
    budget_s = flags["budget"] or default_s
    devices = f"{ranks} ranks" if device == CPU else f"{ranks} x {device}"
    note(f"measuring {devices} for up to {budget_s:g} s; leave the machine alone meanwhile")
    folder, checkpoint = flags.get("nvme"), flags.get("checkpoint")
    target = SweepTarget(
        device=device,
        storage=None if folder is None else Path(folder),
        checkpoint=absolute_or_url(checkpoint),
        fresh=bool(flags.get("fresh")) or bool(programs),
        programs=tuple(programs),
    )
    with ProgressLine("measuring", "rows") as line:
        profile = measure(budget_s, ranks, _events(line), target)
    path = str(save_profile(profile))

    def show(out: Console) -> None:
        _print(out, profile, path)

    emit({"path": path, "profile": to_document(profile)}, flags["json_target"], show)


def _programs(flags: dict[str, Any], cluster: str) -> list[Kernel]:
    """Kernels that ``--programs`` chooses; none without it."""
    count = flags.get("programs")
    if count is None:
        for name in ("model", "dry_run"):
            if flags.get(name):
                flag = f"--{name.replace('_', '-')}"
                raise InputError(flag, "given", "only beside --programs N", "--programs 60")
        return []
    from ..planning.model_programs import model_kernels, programs_to_time

    return programs_to_time(model_kernels(flags.get("model"), cluster), count)


def _list_programs(programs: list[Kernel], json_target: str | None) -> None:
    rows = [
        {"op": x.op, "shape": list(x.shape), "dtype": x.dtype, "traffic_bytes": x.traffic_bytes}
        for x in programs
    ]

    def show(out: Console) -> None:
        out.print(f"{len(programs)} programs would be timed, the most telling first:")
        for x in programs:
            out.print(f"  {x.op} {' x '.join(map(str, x.shape))} {x.dtype}")

    emit({"programs": rows}, json_target, show)


def _events(line: ProgressLine) -> Callable[[dict[str, Any]], None]:
    """A listener that also notes an earlier measurement's finished part."""
    show_progress = profile_progress(line)

    def on_event(event: dict[str, Any]) -> None:
        if finished := event.get("resumed"):
            names = ", ".join(finished)
            note(
                f"going on after {names} of a measurement that was cut short (--fresh starts over)"
            )
        show_progress(event)

    return on_event


def _ranks(text: str) -> tuple[int, str]:
    """Number of ranks, and their device."""
    from ...datasets.clusters.parse import parse_cluster
    from ..problem.this_machine import require_devices

    local = re.fullmatch(r"local(:[^:]*)?", text.strip(), re.IGNORECASE)
    if not local and not re.fullmatch(r"[0-9]+x[^x@+].*", text.strip()):
        raise InputError("--cluster", text, "local, local:N or NxDEVICE, this machine", "local")
    cluster = parse_cluster(text).cluster
    group = cluster.groups[0]
    if len(cluster.groups) > 1 or (not local and group.nodes > 1):
        raise InputError("--cluster", text, "devices of this one machine", "local")
    require_devices(cluster, "--cluster")
    return cluster.device_count, group.device


def _print(out: Console, profile: MachineProfile, path: str) -> None:
    out.print(f"measured {profile.ranks} ranks in {profile.duration_s:.0f} s: {path}")
    facts = ", ".join(f"{name} {value}" for name, value in profile.machine.items())
    out.print(f"machine {profile.fingerprint}: {facts}")
    best = max((row.flops / row.time_s for row in profile.kernels if row.flops), default=0.0)
    out.print(
        f"{len(profile.kernels)} kernels (fastest {best / 1e9:.3g} GFLOP/s a rank), "
        f"{len(profile.collectives)} collectives, {len(profile.copies)} copies"
    )
    if profile.overlap_slowdown is not None:
        out.print(f"work that shares a device: each longer by {profile.overlap_slowdown - 1:.0%}")
    for why, names in _skipped(profile).items():
        out.print(f"not measured: {', '.join(names)} ({why})")
    out.print("next: plan --execute | plan --calibration none, to see what it changes")


def _skipped(profile: MachineProfile) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for item in profile.skipped:
        sizes = " ".join(map(str, item.shape))
        names.setdefault(item.why, []).append(f"{item.op} {sizes} {item.dtype}".strip())
    return names
