"""One folder for all temporary files of a service and its processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...spec.temporary_folder import TemporaryFolder

PREFIX = "shardwright-serve-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in which this process and its children put their temporary files."""
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    with TemporaryFolder(PREFIX) as folder:
        try:
            tempfile.tempdir = os.environ["TMPDIR"] = str(folder.path)
            yield folder.path
        finally:
            tempfile.tempdir = before[0]
            os.environ.pop("TMPDIR")
            if before[1] is not None:
                os.environ["TMPDIR"] = before[1]
