"""Code blocks of the README and docs, run and compared.

A page's blocks are run in order in one folder. A ``text`` block is what the commands of the block
before it printed; ``…`` stands for what was cut: lines where it stands alone, else a part of one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CUT = "…"
MASKS = (
    (re.compile(r"simulated in [\d.]+ m?s"), "simulated in # s"),
    (re.compile(r"this machine has \d+ CPU cores?"), "this machine has # CPU cores"),
    (re.compile(r"stored: \S+/shardwright/"), "stored: #/"),
)
COMMAND_S = 400


class Block(NamedTuple):
    """A fenced block: where it stands, its language and its text."""

    page: str
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """The page and the block's number in it."""
        return f"{self.page} {self.number}"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, numbered from 0."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(page.name, number, *block) for number, block in enumerate(found)]


def every_block() -> list[Block]:
    """The blocks of all pages."""
    return [block for page in PAGES for block in blocks(page)]


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a shell block."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


class Reader:
    """Does what a page says, in a folder.

    Args:
        folder: where files are written.
        port: of a service, in place of the one that is printed.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._folder, self._port = folder, port

    def printed(self, block: Block) -> str:
        """Output of a block's commands or Python; each must succeed."""
        if block.language == "python":
            text = block.text if self._port is None else self._here(block.text)
            return self._run([sys.executable, "-c", text], block)
        return "".join(self._run(self._program(words), block) for words in commands(block))

    def _program(self, words: list[str]) -> list[str]:
        if words[0] == "plan":
            return [sys.executable, "-m", "shardwright.api.cli.main", *words[1:]]
        if words[0] == "curl" and self._port is not None:
            return [self._here(word) for word in words]
        raise AssertionError(f"no reader of tests starts {words[0]}")

    def _here(self, text: str) -> str:
        return text.replace("127.0.0.1:8642", f"127.0.0.1:{self._port}")

    def _run(self, words: list[str], block: Block) -> str:
        done = subprocess.run(
            words, cwd=self._folder, capture_output=True, text=True, check=False,
            timeout=COMMAND_S,
            env={**os.environ, "COLUMNS": "100", "PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"},
        )  # fmt: skip
        assert done.returncode == 0, (block.name, words, done.stderr)
        return done.stdout


def difference(shown: str, printed: str) -> str:
    """'' if a page shows the output; else the first difference.

    Lines may be broken elsewhere: a figure that is masked has more or fewer digits.
    """
    if shown.lstrip().startswith("{"):
        return _of_json(*("".join(each.split()) for each in (shown, printed)))
    words, text = _masked(shown).split(), " ".join(_masked(printed).split())
    if _pattern(words).search(text):
        return ""
    most = max(n for n in range(len(words)) if _pattern(words[:n]).search(text))
    return f"shown, not printed: … {' '.join(words[max(0, most - 6) : most + 8])} …"


def _masked(text: str) -> str:
    joined = " ".join(text.split())
    for pattern, word in MASKS:
        joined = pattern.sub(word, joined)
    return joined


def _pattern(words: list[str]) -> re.Pattern[str]:
    text = " ".join(words)
    return re.compile(".*".join(re.escape(part.strip()) for part in text.split(CUT)))


def _of_json(shown: str, printed: str) -> str:
    place = 0
    for piece in shown.split(CUT):
        found = printed.find(piece, place)
        if found < 0:
            return f"shown, not printed after {place} characters: {piece}"
        place = found + len(piece)
    return ""
