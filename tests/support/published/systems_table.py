"""The table of published systems: rows that the tuple of techniques asks for."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.spec.technique import Values

HEAD = "| published system"


def table_rows(text: str) -> list[tuple[str, ...]]:
    """Cells of each row of a page's table of published systems."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(HEAD)]
    rows = []
    for start in starts:
        for line in lines[start + 1 :]:
            if not line.startswith("|"):
                break
            rows.append(tuple(cell.strip() for cell in line.strip("| ").split("|")))
    return rows


def missing_rows(pages: Iterable[str], techniques: Values) -> list[str]:
    """Faults of the table: systems of a technique without a row, built ones that are planned."""
    rows = [row for page in pages for row in table_rows(page)]
    faults = []
    for technique in techniques:
        file = f"techniques/{technique.name}.py"
        mentions = [row for row in rows if any(file in cell for cell in row)]
        for system in technique.systems:
            if not any(row[0] == system for row in mentions):
                faults.append(f"{system}: a row that names {file}")
        if any(row[-1].startswith("planned") for row in mentions):
            faults.append(f"{technique.name}: built, but its row says planned")
    return faults
