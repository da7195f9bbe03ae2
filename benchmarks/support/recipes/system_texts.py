"""Texts that a system may carry: Debian's manuals in three languages, Python's documentation."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from support.recipes.corpus import Records

MANUALS, DOCUMENTS = Path("/usr/share/man"), Path("/usr/share/doc")
LEAST_CHARACTERS = 400
"""Of a page: fewer are a link to another one."""
RUN_WORDS, MOST_SHARED = 5, 0.5
"""Words of a run, and the share of a translated page's that its English page may have, too."""


class Manuals(NamedTuple):
    """Pages of a language, and names of those in its folder that are mostly English."""

    records: Records
    untranslated: tuple[str, ...] = ()


def manuals(language: str, count: int) -> Manuals:
    """Pages of a language as groff sets them; none where they, or groff, are not installed.

    A folder of a language holds pages of which only headings, or a few paragraphs, are translated.
    Whether a page is one is told without a look at its language: by how many of its runs of words
    stand in the English page of its name, too. They are no records, and are named.
    """
    folder = MANUALS if language == "en" else MANUALS / language
    paths = sorted(folder.glob("man[1-8]/*.gz"), key=_shuffled)
    found: Records = []
    english: list[str] = []
    if shutil.which("groff") is None:
        return Manuals(found)
    for path in paths:
        if len(found) == count:
            break
        text = _plain(path)
        if len(text) < LEAST_CHARACTERS:
            continue
        name = path.relative_to(MANUALS).as_posix()
        original = MANUALS / path.relative_to(folder)
        if original != path and original.is_file() and _share(text, _plain(original)) > MOST_SHARED:
            english.append(name)
            continue
        domain = f"manuals-{language}"
        found.append({"id": name, "text": text, "source": domain, "domain": domain})
    return Manuals(found, tuple(english))


def _share(text: str, other: str) -> float:
    """Share of a text's runs of words that are in another text."""
    runs = _runs(text)
    return len(runs & _runs(other)) / max(1, len(runs))


def _runs(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(zip(*(words[start:] for start in range(RUN_WORDS)), strict=False))


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
