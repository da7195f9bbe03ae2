"""Folders that evidence reads and writes, and the current commit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
STATE = BENCHMARKS / ".state"
SUPPORT = ROOT / "tests" / "support"
GENERATED = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def files_under(path: Path) -> Iterator[Path]:
    """Source and data files of a folder, sorted; a file yields itself."""
    if path.is_file():
        yield path
        return
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(name for name in inner if name not in GENERATED)
        yield from (Path(folder, name) for name in sorted(names) if not name.endswith(".pyc"))


def git(*arguments: str) -> str | None:
    """Output of a git command, stripped; None without git or a repository."""
    program = shutil.which("git")
    if program is None:
        return None
    done = subprocess.run(
        [program, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def commit(paths: Sequence[Path]) -> str:
    """The current commit, with a note if these paths differ from it."""
    head = git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    changed = git("status", "--porcelain", "--", *(str(path) for path in paths))
    return f"{head} with uncommitted changes" if changed else head


def commit_seed() -> int:
    """The first 32 bits of the commit's hash; 0 outside a repository."""
    return int((git("rev-parse", "HEAD") or "0")[:8], 16)
