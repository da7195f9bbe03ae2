"""Long items: parts that survive a sitting, pieces that are made by two processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from harness import machine, work
from harness.parts import Parts
from harness.work import Work
from items.planner import monotone


def test_a_part_counts_only_with_the_inputs_that_it_was_made_with(tmp_path: Path) -> None:
    Parts("x", "one", tmp_path).add("0", "abc", 1.0, {"pairs": 4})
    Parts("x", "one", tmp_path).add("1", "abc", 1.0, {"pairs": 5})
    same = Parts("x", "one", tmp_path).of(["0", "1", "2"])
    assert {key: part.result["pairs"] for key, part in same.items()} == {"0": 4, "1": 5}
    other = Parts("x", "two", tmp_path)
    assert other.of(["0", "1"]) == {}
    assert {part.commit for part in other.older} == {"abc"}
    other.add("0", "def", 2.0, {"pairs": 6})
    assert [part.key for part in Parts("x", "two", tmp_path).older] == ["1"]
    assert Parts("x", "two", tmp_path).of(["0"])["0"].result == {"pairs": 6}


def test_pairs_are_neighbours_in_a_chain() -> None:
    answers = [
        {"step_s": step_s, "proven": True, "devices": 2 + n, "used": 2}
        for n, step_s in enumerate((None, 2.0, 2.0, 1.0, 3.0))
    ]
    found = {"number": 7, "sort": "small", "what": "devices", "answers": answers}
    counts = monotone.counted([found])
    assert (counts["devices"], counts["memory"], counts["small"]) == (4, 0, 4)
    assert (counts["both"], counts["better"], counts["opened"], counts["idle"]) == (3, 1, 1, 3)
    assert [p["name"] for p in counts["worse"]] == ["chain 7 step 3"]


def test_parts_that_are_missing_make_no_pass(tmp_path: Path) -> None:
    counts = monotone.counted([])
    evidence = monotone._evidence([counts], [], [])
    assert not evidence.complete
    assert evidence.rows[0].outcome == "MISS"


def of_this_process(key: str) -> dict[str, object]:
    return {"key": key, "process": os.getpid()}


def test_pieces_are_made_by_two_processes_where_a_core_is_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cores, ours in ((1, True), (2, False)):
        monkeypatch.setattr(work, "spare_cores", lambda own, cores=cores: cores)
        one = Work("x", str(cores), folder=tmp_path)
        one.spreads = True
        found = one.pieces(["a", "b", "c"], of_this_process)
        assert [piece["key"] for piece in found] == ["a", "b", "c"]
        assert all((piece["process"] == os.getpid()) is ours for piece in found)


def test_cores_are_spare_where_nothing_else_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    for load, own, spare in ((0.1, 0, 2), (1.0, 0, 1), (2.0, 2, 2), (5.0, 1, 1)):
        monkeypatch.setattr(machine, "load", lambda load=load: load)
        assert machine.spare_cores(own) == spare


def test_a_run_ends_when_its_time_is_up(tmp_path: Path) -> None:
    assert not Work("x", "1", folder=tmp_path).is_over
    assert not Work("x", "1", folder=tmp_path, minutes=5).is_over
    short = Work("x", "1", folder=tmp_path, minutes=1e-9)
    time.sleep(0.001)
    assert short.is_over
