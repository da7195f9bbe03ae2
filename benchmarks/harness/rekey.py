"""Content keys of recorded answers, from the code at their commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.content_key import digests
from harness.paths import git

LIST_INPUTS = """
import json, sys
import evidence
(item,) = evidence.items([sys.argv[1]])
print(json.dumps([sys.modules[item.run.__module__].__file__, *item.reads]))
"""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The tree of a commit in a scratch folder.

    Raises:
        LookupError: this repository has no such commit.
    """
    if git("cat-file", "-e", f"{commit}^{{commit}}") is None:
        raise LookupError(f"this repository has no commit {commit}")
    with tempfile.TemporaryDirectory() as folder:
        tree, archive = Path(folder, "tree"), Path(folder, "tree.tar")
        tree.mkdir()
        git("archive", "--output", str(archive), commit)
        with tarfile.open(archive) as files:
            files.extractall(tree, filter="data")
        Path(folder, "link").mkdir()
        Path(folder, "link", "shardwright").symlink_to(tree)
        yield tree


def digests_in(tree: Path, item: str) -> Counter[str]:
    """Digests of what an item of this name reads in a tree.

    Raises:
        LookupError: the tree has no such item, or it cannot be imported here.
    """
    folders = (tree / "benchmarks", tree / "tests" / "support", tree.parent / "link")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", LIST_INPUTS, item],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise LookupError(f"no item {item} there ({reason[0]})")
    return digests([tree / path for path in json.loads(done.stdout)])


def difference(old: Counter[str], new: Counter[str]) -> tuple[int, int]:
    """Numbers of files whose code is only in the new, only in the old."""
    return (new - old).total(), (old - new).total()


def in_words(old: Counter[str], new: Counter[str]) -> str:
    """The outcome of a comparison as one line."""
    fresh, gone = difference(old, new)
    if not fresh and not gone:
        return f"stands: {new.total()} files hold the same code"
    return f"stale: {fresh} of {new.total()} files hold other code, {gone} hold it no longer"
