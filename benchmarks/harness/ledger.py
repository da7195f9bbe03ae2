"""The answers so far: ``results.json``, and ``RESULTS.md`` made from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.machine import in_words
from harness.places import BENCHMARKS
from harness.shapes import Evidence, Item, overall

from shardwright.spec.codec import write_atomically

VERSION = 1
MARKDOWN, DOCUMENT, DRAWINGS = "RESULTS.md", "results.json", "drawings"
COMMAND = (
    "PYTHONPATH=benchmarks:tests/support .venv/bin/python benchmarks/evidence.py --again --only "
)


def read(folder: Path = BENCHMARKS) -> dict[str, Any]:
    """Answers by item; none where nothing was written yet."""
    path = folder / DOCUMENT
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["items"]
    return found


def entry(item: Item, evidence: Evidence, about: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as JSON.

    Args:
        item: what was asked.
        evidence: what was found.
        about: machine, date, seconds, commit, load.
    """
    rows = [asdict(row) for row in evidence.rows]
    return {
        "shows": item.shows,
        "target": item.target,
        "command": COMMAND + item.name,
        "outcome": overall(rows),
        "rows": rows,
        "tables": [asdict(table) for table in evidence.tables],
        **({"drawings": sorted(evidence.drawings)} if evidence.drawings else {}),
        **about,
    }


def write(answers: Mapping[str, Any], order: Sequence[str], folder: Path = BENCHMARKS) -> None:
    """Both files, each whole or not at all; items that exist no longer are dropped."""
    kept = {name: answers[name] for name in order if name in answers}
    document = {"schema_version": VERSION, "items": kept}
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    write_atomically(folder / DOCUMENT, text + "\n")
    write_atomically(folder / MARKDOWN, markdown(kept, order))


def draw(evidence: Evidence, folder: Path = BENCHMARKS) -> None:
    """Keep the drawings of an answer."""
    for name, drawing in evidence.drawings.items():
        (folder / DRAWINGS).mkdir(exist_ok=True)
        write_atomically(folder / DRAWINGS / f"{name}.svg", drawing)


HEADER = """# Evidence

Written by `make evidence`; the same in JSON is [results.json](results.json). Every figure was
measured by the command beside it; none is typed in.

- **PASS** and **MISS**: a figure against a target that was set before it was measured.
- **REPORTED**: a figure that has no target.
- **UNMEASURED**: this machine cannot show it.
"""


def markdown(answers: Mapping[str, Any], order: Sequence[str]) -> str:
    """All answers as one page."""
    parts = [HEADER, *_summary(answers, order)]
    parts += ["\n".join(_section(name, answers[name])) for name in order if name in answers]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _summary(answers: Mapping[str, Any], order: Sequence[str]) -> list[str]:
    lines = [_line(["item", "outcome", "shows", "date", "commit"]), _line(["---"] * 5)]
    for name in order:
        found = answers.get(name)
        if found is None:
            lines.append(_line([name, "not run yet", "", "", ""]))
        else:
            link = f"[{name}](#{name})"
            lines.append(
                _line([link, found["outcome"], found["shows"], found["date"], found["commit"]])
            )
    return ["\n".join(lines)]


def _section(name: str, found: Mapping[str, Any]) -> list[str]:
    lines = [f"## {name}", "", f"{found['shows']} Target: {found['target']}", ""]
    lines += [f"- command: `{found['command']}`", f"- machine: {in_words(found['machine'])}"]
    lines.append(
        f"- {found['date']}, {found['seconds']:.0f} s, commit {found['commit']}, "
        f"load {found['load'][0]} before and {found['load'][1]} after"
    )
    lines += ["", _line(["", "figure", "target", "outcome"]), _line(["---"] * 4)]
    lines += [_line([r["name"], r["figure"], r["target"], r["outcome"]]) for r in found["rows"]]
    for name in found.get("drawings", ()):
        lines += ["", f"![{name}]({DRAWINGS}/{name}.svg)"]
    for table in found["tables"]:
        lines += ["", f"**{table['title']}**", "", _line(table["columns"])]
        lines.append(_line(["---"] * len(table["columns"])))
        lines += [_line(row) for row in table["rows"]]
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
