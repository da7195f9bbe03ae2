"""Where things lie, and what they hold: the inputs of an item as one hash."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
STATE = BENCHMARKS / ".state"
SUPPORT = ROOT / "tests" / "support"
GENERATED = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def files_under(place: Path) -> Iterator[Path]:
    """Every file of a folder that a person wrote, sorted; the file itself where it is one."""
    if place.is_file():
        yield place
        return
    for folder, inner, names in os.walk(place):
        inner[:] = sorted(name for name in inner if name not in GENERATED)
        yield from (Path(folder, name) for name in sorted(names) if not name.endswith(".pyc"))


def inputs_hash(places: Sequence[Path]) -> str:
    """Hash of the bytes of these files and folders, and of the interpreter's version.

    Contents, not commits: work that is not committed yet counts as it stands.

    Raises:
        FileNotFoundError: a place that is not there.
    """
    whole = hashlib.sha256(platform.python_version().encode())
    for place in sorted(set(places)):
        if not place.exists():
            raise FileNotFoundError(f"an item reads {place}, which does not exist")
        for path in files_under(place):
            content = hashlib.sha256(path.read_bytes()).digest()
            whole.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + content)
    return whole.hexdigest()[:16]


def git(*arguments: str) -> str | None:
    """What git says, stripped; None where there is no git or no repository."""
    program = shutil.which("git")
    if program is None:
        return None
    done = subprocess.run(
        [program, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def commit(places: Sequence[Path]) -> str:
    """The commit that was measured, with a word if these places differ from it."""
    head = git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    changed = git("status", "--porcelain", "--", *(str(place) for place in places))
    return f"{head} with uncommitted changes" if changed else head
