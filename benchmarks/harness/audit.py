"""``make audit``: locked packages that a public list of weaknesses names.

    audit.py PIP_AUDIT FOLDER

Exits with 1 for weaknesses, with 2 where packages could not be looked up, without a network
among others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def verdict(packages: Sequence[dict[str, Any]]) -> tuple[int, list[str]]:
    """The exit status, and what to print, of packages as pip-audit reports them in JSON."""
    by_name = {(each["name"], each.get("version", "")): each for each in packages}
    weaknesses = [
        f"{name} {version}: {weakness['id']}, mended by "
        + (", ".join(weakness["fix_versions"]) or "no version yet")
        for (name, version), package in sorted(by_name.items())
        for weakness in package.get("vulns", ())
    ]
    skipped = sum("skip_reason" in package for package in by_name.values())
    asked = len(by_name) - skipped
    lines = [*weaknesses, f"audit: {asked} packages looked up, {len(weaknesses)} weaknesses"]
    if skipped:
        lines.append(f"audit: {skipped} packages could not be looked up here")
    return (1 if weaknesses else 2 if skipped else 0), lines


def main(program: str, folder: str) -> int:
    """Audit every lock of a folder; locks of two builds may differ in a version."""
    packages: list[dict[str, Any]] = []
    for lock in sorted(Path(folder).glob("*.txt")):
        command = [program, "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
        command += ["--format", "json", "--requirement", str(lock)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            packages += json.loads(done.stdout)["dependencies"]
        except json.JSONDecodeError:
            why = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
            print(f"audit: {lock.name} could not be looked up here: {why[0][:200]}")
            return 2
    status, lines = verdict(packages)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
