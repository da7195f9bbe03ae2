"""``make gpu-wheels``: fetch small wheels that the report needs.

    python benchmarks/gpu/wheels.py --python 3.12 [--machine x86_64]

They are for the GPU machine's Python, not for the one that fetches them; they land in
``.wheels/``, which git ignores. Only the standard library and pip are used.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / ".wheels"
MIB = 2**20
MOST_BYTES = 60 * MIB
PYTHONS = ("3.11", "3.12", "3.13")
GLIBC_MINORS = (39, 35, 34, 31, 28, 27, 24, 17, 12, 5)
"""Of the manylinux tags that are accepted: pip matches each exactly."""


class Package(NamedTuple):
    """A distribution, and the least version that does."""

    name: str
    least: str


class Group(NamedTuple):
    """Distributions that go together; whether the report can do without them."""

    packages: tuple[Package, ...]
    required: bool


def _alone(name: str, least: str, required: bool = True) -> Group:
    return Group((Package(name, least),), required)


GROUPS = (
    Group(
        (
            Package("pydantic", "2.9"),
            Package("pydantic_core", "2.23"),
            Package("annotated-types", "0.6"),
            Package("typing-inspection", "0.4"),
            Package("typing_extensions", "4.14"),
        ),
        required=True,
    ),
    Group(
        (
            Package("rich", "13.9"),
            Package("markdown-it-py", "2.2"),
            Package("mdurl", "0.1"),
            Package("Pygments", "2.13"),
        ),
        required=True,
    ),
    _alone("click", "8.1"),
    _alone("PyYAML", "6.0"),
    _alone("xxhash", "3.5"),
    _alone("PuLP", "3.3"),
    _alone("highspy", "1.10"),
    _alone("liger-kernel", "0.8.5", required=False),
)
"""Everything of the base that planning and running import, and the kernels that are kept.

Of liger-kernel we call functions that it keeps private: their arguments are those of 0.8.5 on.
"""
GIVEN = (Package("torch", "2.11"), Package("numpy", "2.0"))
"""Packages of the interpreter: too large to carry, or built for its CUDA."""


def pinned(constraints: Path = ROOT / "constraints.txt") -> dict[str, str]:
    """Exact versions by lower-case name."""
    text = constraints.read_text(encoding="utf-8")
    lines = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", text, re.MULTILINE)
    return {name.lower(): version for name, version in lines}


def requirements() -> list[str]:
    """Every wheel that is fetched, ``NAME==VERSION``."""
    versions = pinned()
    names = [package.name for group in GROUPS for package in group.packages]
    return [f"{name}=={versions[name.lower()]}" for name in names]


def fetch_command(python: str, machine: str, folder: Path) -> list[str]:
    """The command of pip for wheels of another interpreter."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    command += ["--implementation", "cp", "--python-version", python]
    for minor in GLIBC_MINORS:
        command += ["--platform", f"manylinux_2_{minor}_{machine}"]
    command += ["--platform", f"manylinux2014_{machine}"]
    return [*command, *requirements()]


def main(arguments: list[str] | None = None) -> int:
    """Fetch, and print what came and how large it is."""
    parser = argparse.ArgumentParser(prog="wheels.py", description="Fetch wheels for the GPU.")
    parser.add_argument("--python", default="3.12", choices=PYTHONS, help="the GPU machine's")
    parser.add_argument("--machine", default=platform.machine(), help="its processor, as x86_64")
    options = parser.parse_args(arguments)
    WHEELS.mkdir(exist_ok=True)
    done = subprocess.run(fetch_command(options.python, options.machine, WHEELS), check=False)
    if done.returncode:
        return done.returncode
    wheels = sorted(WHEELS.glob("*.whl"))
    for path in wheels:
        print(f"{path.stat().st_size / MIB:6.2f} MiB  {path.name}")
    total = sum(path.stat().st_size for path in wheels)
    print(f"{total / MIB:6.2f} MiB  in all, in {WHEELS.name}/")
    if total > MOST_BYTES:
        print(f"gpu-wheels: more than {MOST_BYTES // MIB} MiB; remove old ones", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
