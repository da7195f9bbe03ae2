"""A disk that is full for a while, and a database that may only be read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from service.full_disk import filled, limited_files

READ_ONLY = """
import os, sys
from shardwright.api.server.jobs.database import prepare
from shardwright.spec.errors import InputError
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    prepare(sys.argv[1])
except InputError as error:
    print(error)
"""


@pytest.mark.evidence
@pytest.mark.timeout(200)
def test_a_full_disk_is_a_503_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    found = filled(tmp_path, limited_files(tmp_path))
    assert found.places
    assert found.refused


def test_a_database_that_may_only_be_read_is_refused_with_what_to_do() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "jobs.sqlite"
        file.write_bytes(b"")
        file.chmod(0o444)
        if os.geteuid() != 0:
            folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, f"sqlite:///{file}"], capture_output=True, text=True,
            check=False, timeout=50, env={**os.environ, "PYTHONSAFEPATH": "1"}, cwd="/",
        )  # fmt: skip
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--db: got ")
    assert "may not be written" in done.stdout or "readonly" in done.stdout
    assert "move jobs.sqlite" in done.stdout
    assert done.stdout.count("\n") == 1
