"""The evidence runs: items are well formed, runs resume, answers are written as they were found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import evidence
import pytest
from harness import ledger, places, work
from harness.processes import ran, succeeded
from harness.shapes import Evidence, Item, judged, overall, reported, unmeasured
from harness.work import Work

NAMES = evidence.NAMES


def test_every_item_file_is_listed_and_the_other_way_round() -> None:
    files = {path.stem for path in (places.BENCHMARKS / "items").glob("*/*.py")}
    assert files == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_an_item_is_well_formed(name: str) -> None:
    (item,) = evidence.items([name])
    assert item.shows.endswith(".")
    assert item.target.endswith(".")
    assert all(path.exists() for path in evidence.places(item))
    assert len(places.inputs_hash(evidence.places(item))) == 16


def test_pieces_are_made_once_and_a_torn_line_is_made_again(tmp_path: Path) -> None:
    made: list[str] = []

    def one(key: str) -> dict[str, str]:
        made.append(key)
        return {"key": key}

    keys = ["a", "b", "c"]
    assert [p["key"] for p in Work("x", "1", folder=tmp_path).pieces(keys[:2], one)] == ["a", "b"]
    (file,) = (tmp_path / "x").glob("*.jsonl")
    file.write_text(file.read_text() + '{"key": "c", "sec')
    again = Work("x", "1", folder=tmp_path)
    assert [p["key"] for p in again.pieces(keys, one)] == keys
    assert made == keys
    assert again.kept_s > 0
    Work("x", "2", folder=tmp_path).pieces(["a"], one)
    Work("x", "1", quick=True, folder=tmp_path).pieces(["a"], one)
    assert made == [*keys, "a", "a"]


def test_an_answer_stands_until_its_inputs_change(tmp_path: Path) -> None:
    first = Work("x", "1", folder=tmp_path)
    assert not first.is_done
    first.finish()
    assert Work("x", "1", folder=tmp_path).is_done
    assert not Work("x", "2", folder=tmp_path).is_done
    first.forget()
    assert not Work("x", "1", folder=tmp_path).is_done


def test_inputs_are_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "ROOT", tmp_path)
    folder = tmp_path / "spec"
    folder.mkdir()
    (folder / "a.py").write_text("1")
    before = places.inputs_hash([folder])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.cpython-311.pyc").write_text("x")
    assert places.inputs_hash([folder]) == before
    (folder / "a.py").write_text("2")
    changed = places.inputs_hash([folder])
    (folder / "a.py").rename(folder / "b.py")
    assert len({before, changed, places.inputs_hash([folder])}) == 3
    with pytest.raises(FileNotFoundError, match="does not exist"):
        places.inputs_hash([tmp_path / "gone"])


Toy = Callable[[Callable[[Work], Evidence]], None]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Makes ``gpu`` another item, with state and answers in a folder of its own."""
    monkeypatch.setattr(work, "STATE", tmp_path)
    monkeypatch.setattr(evidence, "STATE", tmp_path)
    plain_write, plain_read = ledger.write, ledger.read
    monkeypatch.setattr(ledger, "write", lambda found, order: plain_write(found, order, tmp_path))
    monkeypatch.setattr(ledger, "read", lambda: plain_read(tmp_path))
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")

    def make(run: Callable[[Work], Evidence]) -> None:
        item = Item(name="gpu", shows="A toy.", target="none.", run=run, reads=("py.typed",))
        monkeypatch.setattr(evidence, "items", lambda names: [item])

    return make


def test_answers_are_written_and_not_asked_for_twice(toy: Toy, tmp_path: Path) -> None:
    asked: list[bool] = []

    def run(work: Work) -> Evidence:
        asked.append(work.quick)
        return Evidence(rows=[judged("a | b", "1 s", "at most 2 s", True, seconds=1.0)])

    toy(run)
    assert evidence.main(["--only", "gpu", "--quick"]) == 0
    assert not (tmp_path / "results.json").exists()
    for words in ([], [], ["--again"]):
        assert evidence.main(["--only", "gpu", *words]) == 0
    assert asked == [True, False, False]
    found = json.loads((tmp_path / "results.json").read_text())["items"]["gpu"]
    assert found["outcome"] == "PASS"
    assert found["rows"][0]["values"] == {"seconds": 1.0}
    assert found["machine"]["cores"] >= 1
    assert "| a \\| b | 1 s | at most 2 s | PASS |" in (tmp_path / "RESULTS.md").read_text()


def test_an_item_that_breaks_is_a_miss_and_is_run_again(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(work: Work) -> Evidence:
        raise ValueError("a deliberate mistake")

    toy(run)
    for _ in range(2):
        assert evidence.main(["--only", "gpu"]) == 1
        assert "no answer from: gpu" in capsys.readouterr().err
    found = json.loads((tmp_path / "results.json").read_text())["items"]["gpu"]
    assert found["outcome"] == "MISS"
    assert "ValueError: a deliberate mistake" in found["rows"][0]["figure"]


def test_one_word_for_many_rows_is_the_worst() -> None:
    rows = [
        {"outcome": row.outcome}
        for row in (
            reported("a", ""),
            judged("b", "", "", True),
            unmeasured("c", ""),
            judged("d", "", "", False),
        )
    ]
    assert [overall(rows[: n + 1]) for n in range(4)] == ["REPORTED", "PASS", "UNMEASURED", "MISS"]


def test_written_answers_are_those_of_the_document() -> None:
    """Nobody typed a figure into RESULTS.md."""
    answers = ledger.read()
    assert set(answers) <= set(NAMES)
    page = places.BENCHMARKS / ledger.MARKDOWN
    assert page.exists() == bool(answers)
    if answers:
        assert page.read_text(encoding="utf-8") == ledger.markdown(answers, NAMES)


def test_memory_is_that_of_the_whole_tree() -> None:
    inner = "import time; x = b'x' * (120 * 2**20); time.sleep(0.4)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    found = succeeded([sys.executable, "-c", outer], follow=True)
    assert found.peak_bytes > 120 * 2**20
    assert 0.4 < found.wall_s < 30
    assert ran([sys.executable, "-c", "raise SystemExit(3)"]).code == 3
    with pytest.raises(RuntimeError, match="exited with 1: ValueError: no"):
        succeeded([sys.executable, "-c", "raise ValueError('no')"])
