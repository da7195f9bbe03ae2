"""``report.py --ship``: turn a finished report into evidence, with its profile.

python -m gpu.ship --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.model_case import PROFILE
from gpu.results import REPORTS

from shardwright.datasets.measured.shipped_profiles import FOLDER as PROFILES
from shardwright.datasets.measured.shipped_profiles import ship_profile
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.codec import from_json, write_atomically
from shardwright.spec.errors import InputError

REPORT = "report.json"


def ship(out: Path, reports: Path = REPORTS, profiles: Path = PROFILES) -> list[Path]:
    """Copy report and profile into the repository; return the written files.

    Args:
        out: folder of a finished report.
        reports: where reports lie (for tests).
        profiles: where profiles lie (for tests).

    Raises:
        InputError: no report, or one that is not finished, of the reduced form, or of a device
            that the catalogue does not know; a profile of another device.
    """
    path = out / REPORT
    if not path.exists():
        raise InputError("--out", str(out), "the folder of a finished report")
    report = json.loads(path.read_text(encoding="utf-8"))
    _check(report)
    profile_path = out / PROFILE
    profile = from_json(MachineProfile, profile_path.read_text(encoding="utf-8"), str(profile_path))
    if profile.device != report["catalogue"]:
        raise InputError(str(profile_path), profile.device, f"the report's {report['catalogue']}")
    written = ship_profile(profile, profiles)
    reports.mkdir(parents=True, exist_ok=True)
    target = reports / f"{report['catalogue']}-{report['date']}.json"
    write_atomically(target, path.read_text(encoding="utf-8"))
    return [written, target]


def _check(report: Mapping[str, Any]) -> None:
    """Refuse a report of no device or with missing rows.

    Raises:
        InputError: see :func:`ship`.
    """
    if report["reduced"]:
        raise InputError("report", "the reduced form, which judges nothing", "one of a GPU")
    if report["catalogue"] is None:
        raise InputError("report", report["device"], "one of a device of the catalogue")
    parts = report["stages"]
    lacking = [name for name, part in parts.items() if not part["rows"] or part["left_out"]]
    if lacking:
        problem = f"not finished: {', '.join(lacking)}"
        raise InputError("report", problem, "one whose stages are finished", "the same run again")


def main(arguments: Sequence[str] | None = None) -> int:
    """Ship, and say where; 2 where there is nothing to ship."""
    parser = argparse.ArgumentParser(prog="python -m gpu.ship")
    parser.add_argument("--out", type=Path, required=True)
    try:
        for path in ship(parser.parse_args(arguments).out):
            print(f"written: {path}")
    except InputError as error:
        print(f"gpu-report: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
