"""The notebooks run from their first cell to their last, and show what they are committed with."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner.notebook_runs import MACHINE, MEASURED, NOTEBOOKS, executed, names, read, shown

RUNS = [
    "quickstart",
    pytest.param("execute", marks=pytest.mark.distributed),
]
LONG = ["long_sequences", "validate", "what_if"]
"""Up to a minute of processor time each."""
MOST_BYTES = 300_000


def test_every_notebook_is_run() -> None:
    assert sorted(["quickstart", "execute", *LONG]) == names()
    assert len(RUNS) == 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RUNS)
def test_a_notebook_shows_what_it_is_committed_with(name: str, tmp_path: Path) -> None:
    _run(name, tmp_path)


@pytest.mark.evidence
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LONG)
def test_a_long_notebook_shows_what_it_is_committed_with(name: str, tmp_path: Path) -> None:
    _run(name, tmp_path)


def _run(name: str, folder: Path) -> None:
    for was, now in zip(read(name).cells, executed(name, folder).cells, strict=True):
        assert now.source == was.source
        if now.cell_type == "code":
            assert shown(now) == shown(was), was.source
    assert {path.suffix for path in folder.iterdir()} <= {".json"}


@pytest.mark.parametrize("name", names())
def test_a_notebook_is_small_and_whole(name: str) -> None:
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < MOST_BYTES
    cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [output["output_type"] for cell in cells for output in cell.outputs]
    assert len(kinds) >= 4
    assert set(kinds) <= {"stream", "execute_result", "display_data"}
    compared = [
        cell for cell in cells if {MACHINE, MEASURED}.isdisjoint(cell.metadata.get("tags", []))
    ]
    assert sum(bool(shown(cell)) for cell in compared) >= 2
