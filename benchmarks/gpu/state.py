"""Rows of a stage, on disk once measured, so that runs resume.

A file of JSON lines a stage: first what the rows belong to (device, versions, code), then a line
before and a line after each row. A row that failed is tried again by the next run, and not in
the run in which it failed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

Status = Literal["ok", "failed"]


class Result(NamedTuple):
    """A row's values, or the reason for none, and its run."""

    key: str
    status: Status
    why: str
    seconds: float
    values: dict[str, Any]
    run: str


class Rows:
    """The rows of one stage.

    Args:
        folder: where they are kept.
        stage: whose.
        identity: of what was measured; rows of another identity are dropped.
    """

    def __init__(self, folder: Path, stage: str, identity: str) -> None:
        self._path = folder / f"{stage}.jsonl"
        self._identity = identity
        folder.mkdir(parents=True, exist_ok=True)
        lines = self._lines()
        if not lines or lines[0].get("identity") != identity:
            self._path.unlink(missing_ok=True)
            self._append({"identity": identity})

    def results(self) -> dict[str, Result]:
        """The last result of every key, in the order of first measurement."""
        rows: dict[str, Result] = {}
        for line in self._lines():
            if "status" in line:
                rows[line["key"]] = Result(**line)
        return rows

    def unfinished(self) -> str | None:
        """The row last begun without a result: its process ended."""
        last: str | None = None
        for line in self._lines():
            if "begin" in line:
                last = line["begin"]
            elif line.get("key") == last:
                last = None
        return last

    def to_measure(self, keys: list[str], run: str) -> list[str]:
        """Keys without a good row that did not fail in this run."""
        measured = self.results()
        done = {k for k, r in measured.items() if r.status == "ok" or r.run == run}
        return [key for key in keys if key not in done]

    def plan(self, keys: list[str]) -> None:
        """Note the keys to measure, so that gaps can be named."""
        if keys != self.planned():
            self._append({"planned": keys})

    def planned(self) -> list[str]:
        """Keys to be measured; empty if the stage never began."""
        noted = [line["planned"] for line in self._lines() if "planned" in line]
        return list(noted[-1]) if noted else []

    def begin(self, key: str) -> None:
        """Note that a row is being measured."""
        self._append({"begin": key})

    def keep(self, result: Result) -> None:
        """Add a row for good; as failed if JSON cannot hold it."""
        try:
            self._append(result._asdict())
        except (TypeError, ValueError) as error:
            why = f"its values cannot be kept: {_what_json_lacks(result.values) or error}"
            self._append(result._replace(status="failed", why=why, values={})._asdict())

    def forget(self) -> None:
        """Drop all rows."""
        self._path.unlink(missing_ok=True)
        self._append({"identity": self._identity})

    def _append(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, allow_nan=False) + "\n"  # before the file is touched
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            with self._path.open("r+b") as file:
                file.truncate(len(whole.encode()))
        return [json.loads(line) for line in whole.splitlines()]


def _what_json_lacks(values: Mapping[str, Any]) -> str:
    """Path of the first non-finite number; empty if there is none."""
    waiting: list[tuple[str, Any]] = list(values.items())
    while waiting:
        path, value = waiting.pop(0)
        if isinstance(value, float) and not math.isfinite(value):
            return f"{path} is {value}"
        if isinstance(value, Mapping):
            waiting += [(f"{path}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
    return ""
