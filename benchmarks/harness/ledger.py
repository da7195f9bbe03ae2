"""The recorded answers: ``results.json``, and the pages made from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.machine import in_words
from harness.paths import BENCHMARKS
from harness.shapes import Evidence, Item, overall

from shardwright.spec.codec import write_atomically

VERSION = 2
MARKDOWN, DOCUMENT, DRAWINGS, PAGES = "RESULTS.md", "results.json", "drawings", "results"
COMMAND = (
    "PYTHONPATH=benchmarks:tests/support .venv/bin/python benchmarks/evidence.py --again --only "
)
Record = dict[str, Any]


@dataclass(slots=True)
class Answers:
    """Records by item: those of `make evidence`, and those of ``--full``."""

    short: dict[str, Record] = field(default_factory=dict)
    full: dict[str, Record] = field(default_factory=dict)

    def of(self, full: bool) -> dict[str, Record]:
        """The records of one form."""
        return self.full if full else self.short


def read(folder: Path = BENCHMARKS) -> Answers:
    """All records; none before the first is written."""
    path = folder / DOCUMENT
    if not path.exists():
        return Answers()
    document = json.loads(path.read_text(encoding="utf-8"))
    return Answers(short=document["items"], full=document["full"])


def entry(item: Item, evidence: Evidence, about: Mapping[str, Any], full: bool) -> Record:
    """An answer as JSON.

    Args:
        item: the question.
        evidence: its answer.
        about: machine, date, seconds, commit, seed, load, key.
        full: the answer is that of the long form.
    """
    rows = [asdict(row) for row in evidence.rows]
    return {
        "shows": item.shows,
        "target": item.full_target if full and item.full_target else item.target,
        "command": COMMAND + item.name + (" --full" if full else ""),
        "outcome": overall(rows),
        "rows": rows,
        "tables": [asdict(table) for table in evidence.tables],
        **({"drawings": sorted(evidence.drawings)} if evidence.drawings else {}),
        **about,
    }


def add(records: dict[str, Record], name: str, record: Record) -> None:
    """Replace a record, and keep the first figure of the last one."""
    earlier: list[Record] = []
    if last := records.get(name):
        row = last["rows"][0]
        kept = {key: last.get(key) for key in ("date", "commit", "seed", "seconds")}
        earlier = [
            *last.get("earlier", ()),
            {**kept, "outcome": last["outcome"], "name": row["name"], "figure": row["figure"]},
        ]
    records[name] = {**record, **({"earlier": earlier} if earlier else {})}


def write(answers: Answers, order: Sequence[str], folder: Path = BENCHMARKS) -> None:
    """Write all files, each atomically; drop items that no longer exist."""
    kept = Answers(
        short={name: answers.short[name] for name in order if name in answers.short},
        full={name: answers.full[name] for name in order if name in answers.full},
    )
    document = {"schema_version": VERSION, "items": kept.short, "full": kept.full}
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    write_atomically(folder / DOCUMENT, text + "\n")
    write_atomically(folder / MARKDOWN, markdown(kept, order))
    (folder / PAGES).mkdir(exist_ok=True)
    pages = {
        f"{name}.md": page(name, kept) for name in order if name in {**kept.short, **kept.full}
    }
    for path in (folder / PAGES).glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, content in pages.items():
        write_atomically(folder / PAGES / name, content)


def draw(evidence: Evidence, folder: Path = BENCHMARKS) -> None:
    """Write the drawings of an answer."""
    for name, drawing in evidence.drawings.items():
        (folder / DRAWINGS).mkdir(exist_ok=True)
        write_atomically(folder / DRAWINGS / f"{name}.svg", drawing)


HEADER = f"""# Evidence

Written by `make evidence`: one page an item behind the links, the same in JSON in
[{DOCUMENT}]({DOCUMENT}). **PASS** and **MISS**: against a target set before measuring.
**REPORTED**: no target. **UNMEASURED**: this machine cannot show it. *Full*: the long form,
`evidence.py --only ITEM --full`, at its own commit.
"""


def markdown(answers: Answers, order: Sequence[str]) -> str:
    """The table of all items."""
    lines = [_line(["item", "shows", "outcome", "full"]), _line(["---"] * 4)]
    for name in order:
        records = [records[name] for records in (answers.short, answers.full) if name in records]
        link = f"[{name}]({PAGES}/{name}.md)" if records else name
        cells = [_outcome(answers.short.get(name)), _outcome(answers.full.get(name), "")]
        lines.append(_line([link, records[0]["shows"] if records else "", *cells]))
    return HEADER + "\n" + "\n".join(lines) + "\n"


def _outcome(record: Record | None, none: str = "not run yet") -> str:
    return f"{record['outcome']}, {record['date'][:10]}, {record['commit'][:7]}" if record else none


def page(name: str, answers: Answers) -> str:
    """The page of an item: the short form, then the full one."""
    parts = [[f"# {name}"]]
    for title, records in (("Short form", answers.short), ("Full form", answers.full)):
        if name in records:
            parts.append(_section(title, records[name]))
    return "\n\n".join("\n".join(part).strip("\n") for part in parts) + "\n"


def _section(title: str, record: Mapping[str, Any]) -> list[str]:
    lines = [f"## {title}", "", f"{record['shows']} Target: {record['target']}", ""]
    lines += [f"- command: `{record['command']}`", f"- machine: {in_words(record['machine'])}"]
    seed = f", seed {record['seed']}" if record.get("seed") else ""
    lines.append(
        f"- {record['date']}, {record['seconds']:.0f} s, commit {record['commit']}{seed}, "
        f"load {record['load'][0]} before and {record['load'][1]} after"
    )
    lines += ["", _line(["", "figure", "target", "outcome"]), _line(["---"] * 4)]
    lines += [_line([r["name"], r["figure"], r["target"], r["outcome"]]) for r in record["rows"]]
    for name in record.get("drawings", ()):
        lines += ["", f"![{name}](../{DRAWINGS}/{name}.svg)"]
    for table in record["tables"]:
        lines += ["", f"**{table['title']}**", "", _line(table["columns"])]
        lines.append(_line(["---"] * len(table["columns"])))
        lines += [_line(row) for row in table["rows"]]
    if "earlier" in record:
        lines += ["", "**Earlier runs**", "", _line(["date", "commit", "figure", "outcome"])]
        lines.append(_line(["---"] * 4))
        lines += [
            _line([run["date"], run["commit"], f"{run['name']}: {run['figure']}", run["outcome"]])
            for run in record["earlier"]
        ]
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
