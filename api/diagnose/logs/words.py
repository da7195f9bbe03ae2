"""Printed values and documents of logs. Nothing in them is run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

PREFIX = re.compile(r"^(?:\[(?:rank|default|Rank )\s?\d+\]:?|\d+:)\s?")
COLORS = re.compile(r"\x1b\[[0-9;]*m")
WORDS = {"None": None, "True": True, "False": False, "null": None, "true": True, "false": False}
WHOLE = re.compile(r"[-+]?\d{1,18}")
DECIMAL = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d{1,3})?")
MEMBER = re.compile(r"<?[A-Z]\w*\.(\w+)(?:: .*>)?")
FORMATS = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
MOST_LINES = 20_000
"""Lines of a document in a log."""


def plain(line: str) -> str:
    """A line without colors and the rank before it."""
    return PREFIX.sub("", COLORS.sub("", line.rstrip("\n")))


def scalar(text: str) -> Any:
    """A printed Python value: a number, a word, or a list of words in one text."""
    text = text.strip()
    if text in WORDS:
        return WORDS[text]
    if WHOLE.fullmatch(text):
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    if text in FORMATS:
        return FORMATS[text]
    if found := MEMBER.fullmatch(text):
        return found.group(1).lower()
    if text[:1] + text[-1:] in ("[]", "()"):
        parts = [str(scalar(part)) for part in text[1:-1].split(",") if part.strip()]
        return " ".join(parts) or None
    return text.strip("'\"")


class DocumentLines:
    """Collects a JSON object that is printed over several lines after a mark."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._lines: list[str] | None = None
        self.found: Mapping[str, Any] = {}

    def add(self, line: str) -> None:
        """Take a line; ``found`` is the last whole object."""
        if self._lines is None:
            _, mark, rest = line.partition(self._mark)
            if not mark or not rest.lstrip().startswith("{"):
                return
            self._lines = [rest.lstrip()]
        else:
            self._lines.append(line)
        if "}" in line:
            self._finish()
        elif len(self._lines) > MOST_LINES:
            self._lines = None

    def _finish(self) -> None:
        text = "\n".join(self._lines or ())
        try:
            document, _ = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return
        self._lines = None
        if isinstance(document, dict):
            self.found = document


def flat(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Keys with dots between sections."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
