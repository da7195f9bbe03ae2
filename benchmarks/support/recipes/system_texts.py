"""Texts that a system may carry: Debian's manuals in three languages, Python's documentation."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.recipes.corpus import Records

MANUALS, DOCUMENTS = Path("/usr/share/man"), Path("/usr/share/doc")
LEAST_CHARACTERS = 400
"""Of a page: fewer are a link to another one."""


def manuals(language: str, count: int) -> Records:
    """Pages of a language as groff sets them; none where they, or groff, are not installed."""
    folder = MANUALS if language == "en" else MANUALS / language
    paths = sorted(folder.glob("man[1-8]/*.gz"), key=_shuffled)
    found: Records = []
    if shutil.which("groff") is None:
        return found
    for path in paths:
        if len(found) == count:
            break
        text = _plain(path)
        if len(text) >= LEAST_CHARACTERS:
            name = path.relative_to(MANUALS).as_posix()
            domain = f"manuals-{language}"
            found.append({"id": name, "text": text, "source": domain, "domain": domain})
    return found


def python_documentation(count: int) -> Records:
    """Sources of Python's documentation as Debian installs it."""
    paths: Sequence[Path] = sorted(DOCUMENTS.glob("python3*/html/_sources/**/*.txt"), key=_shuffled)
    records: Records = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if len(text) >= LEAST_CHARACTERS and len(records) < count:
            name = path.relative_to(DOCUMENTS).as_posix()
            records.append({"id": name, "text": text, "source": "python", "domain": "python"})
    return records


def _shuffled(path: Path) -> bytes:
    return hashlib.sha256(path.name.encode()).digest()


def _plain(path: Path) -> str:
    source = gzip.decompress(path.read_bytes())
    if source.lstrip().startswith(b".so "):
        return ""
    command = ["groff", "-K", "utf8", "-mandoc", "-T", "utf8", "-P", "-cbou"]
    done = subprocess.run(command, input=source, capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace")
