"""Two thousand damaged files of every kind that people hand over; the evidence tier reads 10^5."""

from __future__ import annotations

from pathlib import Path

from runner import fuzz_files


def test_whole_files_are_read(tmp_path: Path) -> None:
    for name, kind in fuzz_files.kinds().items():
        for whole in kind.whole:
            path = tmp_path / name / kind.file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(whole)
            assert kind.read(path) is not None


def test_damaged_files_are_refused_in_a_line_or_usable(tmp_path: Path) -> None:
    found, _ = fuzz_files.run_files(2000, tmp_path)
    assert sum(found.values()) == 2000
    for name in fuzz_files.kinds():
        assert found[f"{name} refused"] >= 50
