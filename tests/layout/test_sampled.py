"""The tables of what ``make test`` leaves to evidence name files that are there."""

from __future__ import annotations

from pathlib import Path

from runner.sampled import EVERY, LONG

TESTS = Path(__file__).resolve().parents[1]


def test_sampled_files_are_there() -> None:
    assert [name for name in sorted({*EVERY, *LONG}) if not (TESTS / name).is_file()] == []


def test_sampled_tables_leave_something_to_run() -> None:
    assert min(EVERY.values()) >= 2
