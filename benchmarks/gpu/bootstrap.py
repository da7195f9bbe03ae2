"""Environment of the report: an importable checkout and missing packages.

Only the standard library is loaded here, for the packages may be missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from gpu.wheels import GIVEN, GROUPS, WHEELS, Package, pinned

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent


class MissingError(Exception):
    """A package that is needed is neither installed nor in a wheel."""


def environment(out: Path) -> dict[str, str]:
    """Variables under which ``import shardwright`` is this checkout, whatever its folder's name.

    The user's own profiles and caches are neither used nor added to.

    Args:
        out: folder of the results; links and unpacked wheels go below it.

    Raises:
        MissingError: see :func:`check_given` and :func:`installed_missing`.
    """
    check_given()
    packages = f"packages-{sys.version_info.major}.{sys.version_info.minor}"
    path = [linked(out), BENCHMARKS, *installed_missing(out / "site" / packages)]
    private = out / "user"
    homes = {f"XDG_{kind}_HOME": str(private / kind.lower()) for kind in ("CACHE", "CONFIG")}
    homes |= {f"XDG_{kind}_HOME": str(private / kind.lower()) for kind in ("DATA", "STATE")}
    return {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        **homes,
    }


def check_given(given: tuple[Package, ...] = GIVEN) -> None:
    """See that the interpreter has what no wheel of ours holds.

    Raises:
        MissingError: it lacks one of them, or has an older one.
    """
    lacking = [
        f"{p.name} >= {p.least} (has {_version(p) or 'none'})" for p in given if not is_here(p)
    ]
    if lacking:
        raise MissingError(
            f"{sys.executable} needs {', '.join(lacking)}; name a Python that has them: "
            "make gpu-report PYTHON=/path/to/python3"
        )


def linked(out: Path) -> Path:
    """A folder that holds one link, ``shardwright``, to the checkout."""
    folder = out / "site" / "link"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "shardwright"
    if not (link.is_symlink() and link.resolve() == ROOT):
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT, target_is_directory=True)
    return folder


def installed_missing(target: Path) -> list[Path]:
    """Unpack the wheels of missing packages; return the folder, if any.

    Raises:
        MissingError: a package that the report cannot do without, and no wheel of it.
    """
    lacking = [group for group in GROUPS if not all(map(is_here, group.packages))]
    before = {name.lower() for name in _names_in(target)}
    unpacked = []
    for group in lacking:
        names = [package.name for package in group.packages]
        if before >= {name.lower().replace("-", "_") for name in names} or _install(names, target):
            unpacked.append(group)
        elif group.required:
            missing = ", ".join(p.name for p in group.packages if not is_here(p))
            raise MissingError(
                f"{missing} not installed for {sys.executable}, and {WHEELS.name}/ has no wheels "
                f"that fit it: run `make gpu-wheels` where there is a network, and bring the folder"
            )
        else:
            print(f"gpu-report: goes on without {group.packages[0].name}", file=sys.stderr)
    return [target] if unpacked else []


def _names_in(folder: Path) -> list[str]:
    distributions = metadata.distributions(path=[str(folder)])
    return [distribution.metadata["Name"].replace("-", "_") for distribution in distributions]


def is_here(package: Package) -> bool:
    """True if the package is installed, and recent enough."""
    version = _version(package)
    return version is not None and _numbers(version) >= _numbers(package.least)


def _version(package: Package) -> str | None:
    try:
        return metadata.version(package.name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _install(names: list[str], target: Path) -> bool:
    if not WHEELS.is_dir():
        return False
    versions = pinned()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-compile", "--no-cache-dir", "--disable-pip-version-check", "--upgrade"]
    command += ["--find-links", str(WHEELS), "--target", str(target)]
    command += [f"{name}=={versions[name.lower()]}" for name in names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0
