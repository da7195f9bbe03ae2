"""The notebooks, executed; as a program it writes their outputs anew.

``python tests/support/runner/notebook_runs.py [NAME …]`` runs all, or those named, in a scratch
folder,
and keeps what they print and draw. Look at the difference before you commit it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
CELL_S = 150
"""Seconds that one cell may take."""
MACHINE = "machine"
"""Tag of a cell whose figures, and so the order of its lines, are of the machine that it ran on."""
MEASURED = "measured"
"""Tag of a cell whose very rows a run decides (a wait may be none): only their kind is compared."""
TIMED = re.compile(r"(simulated in |answered in )[\d.]+ (?:s|ms|us)")
NUMBER = re.compile(r"\d[\d.,e+-]*")


def names() -> list[str]:
    """The notebooks, by name."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def read(name: str) -> Any:
    """A notebook as it is committed."""
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def executed(name: str, folder: Path) -> Any:
    """A notebook run from first to last cell, in a folder.

    Raises:
        CellExecutionError: a cell failed.
    """
    notebook = read(name)
    NotebookClient(
        notebook,
        timeout=CELL_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    return notebook


def shown(cell: Any) -> list[Any]:
    """Machine-independent output of a cell; of pictures, their presence."""
    found: list[Any] = []
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            found.append(_masked(cell, output["text"]))
            continue
        kinds = sorted(output["data"])
        text = output["data"].get("text/html") or output["data"].get("text/plain", "")
        found.append((kinds, _masked(cell, text)))
    return found


def _masked(cell: Any, text: str) -> str:
    if MEASURED in cell.metadata.get("tags", []):
        return ""
    text = TIMED.sub(r"\1#", text)
    if MACHINE not in cell.metadata.get("tags", []):
        return text
    return "\n".join(sorted(NUMBER.sub("#", line).strip() for line in _words(text)))


def _words(text: str) -> list[str]:
    plain = re.sub(r"<[^>]*>", "\n", text)
    return [line for line in plain.splitlines() if re.search(r"[a-z]{3}", line)]


if __name__ == "__main__":
    for each in sys.argv[1:] or names():
        with tempfile.TemporaryDirectory() as scratch:
            nbformat.write(executed(each, Path(scratch)), NOTEBOOKS / f"{each}.ipynb")
        sys.stdout.write(f"{each}: {(NOTEBOOKS / f'{each}.ipynb').stat().st_size // 1024} KiB\n")
