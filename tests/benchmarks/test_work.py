"""Long items: pairs of chains, and pieces made by two processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import machine, work
from harness.work import Work
from items.planner import monotone


def test_pairs_are_neighbors_in_a_chain() -> None:
    answers = [
        {"step_s": step_s, "proven": True, "devices": 2 + n, "used": 2}
        for n, step_s in enumerate((None, 2.0, 2.0, 1.0, 3.0))
    ]
    chain = {"number": 7, "sort": "small", "what": "devices", "answers": answers}
    counts = monotone.counted([chain])
    assert (counts["devices"], counts["memory"], counts["small"]) == (4, 0, 4)
    assert (counts["both"], counts["better"], counts["opened"], counts["idle"]) == (3, 1, 1, 3)
    assert [p["name"] for p in counts["worse"]] == ["chain 7 step 3"]


def test_too_few_pairs_make_no_pass() -> None:
    assert monotone._evidence(monotone.counted([]), 4).rows[0].outcome == "MISS"


def of_this_process(key: str) -> dict[str, object]:
    return {"key": key, "process": os.getpid()}


def test_pieces_are_made_by_two_processes_where_a_core_is_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cores, ours in ((1, True), (2, False)):
        monkeypatch.setattr(work, "spare_cores", lambda own, cores=cores: cores)
        one = Work("x", str(cores), folder=tmp_path)
        one.spreads = True
        pieces = one.pieces(["a", "b", "c"], of_this_process)
        assert [piece["key"] for piece in pieces] == ["a", "b", "c"]
        assert all((piece["process"] == os.getpid()) is ours for piece in pieces)


def test_cores_are_spare_where_nothing_else_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    for load, own, spare in ((0.1, 0, 2), (1.0, 0, 1), (2.0, 2, 2), (5.0, 1, 1)):
        monkeypatch.setattr(machine, "load", lambda load=load: load)
        assert machine.spare_cores(own) == spare
