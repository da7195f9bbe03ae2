"""Stage 3: ``plan profile`` of this device, for the later predictions."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from gpu.machine_facts import cluster_of
from gpu.model_case import PROFILE
from gpu.stage import Measurement, Setting, Stage, Values
from harness.shapes import Table

from shardwright.profiler import sweep
from shardwright.profiler.store.profiles import save_profile

END_S = 20.0
"""Of the stage's budget, for the pool's start and end."""
REDUCED_BUDGET_S = 6.0


def rows(setting: Setting) -> list[Measurement]:
    """The profile is one row: it resumes by itself."""
    return [Measurement("profile", partial(_profile, setting))]


def _profile(setting: Setting) -> Values:
    """Measure, keep under the report's own folder, and copy beside the report.

    Raises:
        ValueError: the catalogue has no such device, so nothing could be priced by its profile.
    """
    cluster_of(setting.facts)
    budget_s = REDUCED_BUDGET_S if setting.reduced else setting.left_s() - END_S
    extra: dict[str, Any] = {}
    if setting.device.type == "cuda":
        # The drive that is measured is the one that the report is written to.
        extra["target"] = sweep.SweepTarget(device=setting.facts["catalogue"], storage=setting.out)
    profile = sweep.measure(budget_s, 1, **extra)
    path = save_profile(profile)
    shutil.copyfile(path, setting.out / PROFILE)
    return {
        "duration_s": profile.duration_s,
        "rows": dict(Counter(row.op for row in profile.kernels)),
        "host_s": dict(profile.host_s),
        "kernel_slowdown": profile.kernel_slowdown,
        "spread": sorted(row.spread for row in profile.kernels)[len(profile.kernels) // 2],
    }


def tables(values: Mapping[str, Values]) -> list[Table]:
    """Numbers of measured rows."""
    row = values["profile"]
    lines = [
        ("seconds", f"{row['duration_s']:.0f}"),
        ("rows", str(sum(row["rows"].values()))),
        ("kinds of kernel", ", ".join(f"{op} {n}" for op, n in sorted(row["rows"].items()))),
        ("median spread", f"{row['spread']:.1%}"),
        ("slower inside a step by", f"{row['kernel_slowdown'] - 1:.1%}"),
        *((f"host, {name}", f"{s * 1e6:.1f} µs") for name, s in sorted(row["host_s"].items())),
    ]
    return [Table(title="Profile", columns=("what", "figure"), rows=lines)]


STAGE = Stage(
    name="profile",
    order=3,
    budget_s=260,
    reduced_s=180,
    shows="The measured profile of this device; the file lies beside the report.",
    rows=rows,
    tables=tables,
)
