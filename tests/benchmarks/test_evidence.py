"""Evidence: well-formed items, resumed runs, records keyed by content."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import evidence
import pytest
from harness import ledger, paths, rekey, work
from harness.content_key import code_of, content_key, digests
from harness.processes import ran, succeeded
from harness.rekey import checked_out as rekey_at
from harness.shapes import Evidence, Item, judged, overall, reported, unmeasured
from harness.work import Form, Work

NAMES = evidence.NAMES
MOST_LINES = 90


def test_every_item_file_is_listed_and_the_other_way_round() -> None:
    files = {path.stem for path in (paths.BENCHMARKS / "items").glob("*/*.py")}
    assert files == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_an_item_is_well_formed(name: str) -> None:
    (item,) = evidence.items([name])
    assert item.shows.endswith(".")
    assert item.target.endswith(".")
    assert item.full_target.endswith(".") or not item.full_target
    assert all(path.exists() for path in evidence.inputs(item))
    assert len(content_key(evidence.inputs(item))) == 16


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
    Work("x", "1", "quick", folder=tmp_path).pieces(["a"], one)
    Work("x", "1", "short", 7, folder=tmp_path).pieces(["a"], one)
    assert made == [*keys, "a", "a", "a"]


def test_draws_follow_the_commit_and_the_long_form_starts_at_0(tmp_path: Path) -> None:
    def work(form: Form, seed: int) -> Work:
        return Work("x", "1", form, seed, folder=tmp_path)

    cases = list(range(40))
    first, again, other = work("short", 5), work("short", 5), work("short", 6)
    assert first.first_seed(32) == again.first_seed(32) != other.first_seed(32)
    assert first.first_seed(32) % 32 == 0
    assert first.sample(cases, 9, 2) == again.sample(cases, 9, 2) != other.sample(cases, 9, 2)
    assert len(first.sample(cases, 9, 2)) == 9
    for form, size, sampled in (("full", 3, cases), ("quick", 2, cases[:2])):
        assert work(form, 5).first_seed(32) == 0
        assert work(form, 5).sized(1, 2, 3) == size
        assert work(form, 5).sample(cases, 9, 2) == sampled
    assert work("full", 5).sized(1, 2) == first.sized(1, 2, 3) == 1


def test_a_moved_file_holds_the_same_code(tmp_path: Path) -> None:
    folder = tmp_path / "spec"
    folder.mkdir()
    (folder / "a.py").write_text('"""A."""\nfrom .b import c\nX = 1\n"""What X is."""\n')
    (folder / "t.csv").write_text("1")
    before = content_key([folder])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.cpython-311.pyc").write_text("x")
    (folder / "a.py").rename(folder / "b.py")
    (folder / "t.csv").rename(folder / "u.csv")
    (folder / "b.py").write_text("# Moved.\nfrom ..d.b import c\n\nX = (1)\n")
    (folder / "__init__.py").write_text('"""A card."""\n')
    assert content_key([folder]) == before
    assert content_key([folder, folder / "b.py"]) == before
    (folder / "u.csv").write_text("22")
    changed = content_key([folder])
    (folder / "b.py").write_text("Y = 1")
    assert len({before, changed, content_key([folder])}) == 3
    with pytest.raises(FileNotFoundError, match="does not exist"):
        content_key([tmp_path / "gone"])


def test_the_paths_of_an_item_are_no_code() -> None:
    item = 'ITEM = Item(name="x", reads=({}))'
    assert code_of(item.format('"a",').encode()) == code_of(item.format('"b", "c"').encode())
    assert code_of(item.encode()) != code_of(item.replace('"x"', '"y"').encode())
    assert code_of(b'"""Nothing but words."""\nimport os\n') == ""
    inner = "def f():\n    {}\n    return 1\n"
    assert code_of(inner.format('"""Doc."""').encode()) == code_of(
        inner.format("import a").encode()
    )


def test_a_record_is_keyed_by_the_code_at_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same tree under another path stands; one with other code does not."""
    (item,) = evidence.items(["gpu"])
    tree = tmp_path / "tree"

    @contextmanager
    def checked_out(commit: str) -> Iterator[Path]:
        yield tree

    now = digests(evidence.inputs(item))
    answers = ledger.Answers(short={"gpu": {"commit": "abc", "key": None}})
    monkeypatch.setattr(ledger, "read", lambda: answers)
    monkeypatch.setattr(ledger, "write", lambda *_: None)
    monkeypatch.setattr(rekey, "checked_out", checked_out)
    for old, stands in ((now, True), (now - Counter(list(now)[:2]), False)):
        monkeypatch.setattr(rekey, "digests_in", lambda *_, old=old: old)
        assert evidence.main(["--rekey", "abc", "--only", "gpu"]) == 0
        key = answers.short["gpu"]["key"]
        assert (key == content_key(evidence.inputs(item))) is stands
        said = capsys.readouterr().out
        assert ("stands" in said) is stands
        assert ("stale: 2 of" in said) is not stands
    with pytest.raises(LookupError, match="no commit"), rekey_at("0" * 12):
        pass


Toy = Callable[[Callable[[Work], Evidence]], None]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Makes ``gpu`` another item, with state and answers in a folder of its own."""
    monkeypatch.setattr(work, "STATE", tmp_path)
    monkeypatch.setattr(evidence, "STATE", tmp_path)
    plain_write, plain_read = ledger.write, ledger.read
    monkeypatch.setattr(ledger, "write", lambda new, order: plain_write(new, order, tmp_path))
    monkeypatch.setattr(ledger, "read", lambda: plain_read(tmp_path))
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")

    def make(run: Callable[[Work], Evidence]) -> None:
        item = Item(name="gpu", shows="A toy.", target="none.", full_target="all.", run=run,
                    reads=("py.typed",))  # fmt: skip
        monkeypatch.setattr(evidence, "items", lambda names: [item])

    return make


def test_answers_are_written_and_not_asked_for_twice(toy: Toy, tmp_path: Path) -> None:
    forms: list[str] = []

    def run(work: Work) -> Evidence:
        forms.append(work.form)
        return Evidence(rows=[judged("a | b", "1 s", "at most 2 s", True, seconds=1.0)])

    toy(run)
    assert evidence.main(["--only", "gpu", "--quick"]) == 0
    assert not (tmp_path / "results.json").exists()
    for words in ([], [], ["--again"], ["--full"], ["--full"]):
        assert evidence.main(["--only", "gpu", *words]) == 0
    assert forms == ["quick", "short", "short", "full"]
    document = json.loads((tmp_path / "results.json").read_text())
    short, full = document["items"]["gpu"], document["full"]["gpu"]
    assert short["outcome"] == "PASS"
    assert short["rows"][0]["values"] == {"seconds": 1.0}
    assert short["machine"]["cores"] >= 1
    assert [run["figure"] for run in short["earlier"]] == ["1 s"]
    assert (full["target"], full["seed"]) == ("all.", 0)
    assert "earlier" not in full
    page = (tmp_path / "results" / "gpu.md").read_text()
    assert page.count("| a \\| b | 1 s | at most 2 s | PASS |") == 2
    table = (tmp_path / "RESULTS.md").read_text()
    assert "| [gpu](results/gpu.md) | A toy. | PASS, " in table


def test_an_item_that_breaks_is_a_miss_and_is_run_again(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(work: Work) -> Evidence:
        raise ValueError("a deliberate mistake")

    toy(run)
    for _ in range(2):
        assert evidence.main(["--only", "gpu"]) == 1
        assert "no answer from: gpu" in capsys.readouterr().err
    record = json.loads((tmp_path / "results.json").read_text())["items"]["gpu"]
    assert (record["outcome"], record["key"]) == ("MISS", None)
    assert "ValueError: a deliberate mistake" in record["rows"][0]["figure"]


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


def test_the_pages_are_made_from_the_document() -> None:
    """Nobody typed a figure into a page."""
    answers = ledger.read()
    recorded = {**answers.short, **answers.full}
    assert set(recorded) <= set(NAMES)
    table = (paths.BENCHMARKS / ledger.MARKDOWN).read_text(encoding="utf-8")
    assert table == ledger.markdown(answers, NAMES)
    assert table.count("\n") <= MOST_LINES
    folder = paths.BENCHMARKS / ledger.PAGES
    assert {path.stem for path in folder.iterdir()} == set(recorded)
    for name in recorded:
        page = (folder / f"{name}.md").read_text(encoding="utf-8")
        assert page == ledger.page(name, answers)


def test_memory_is_that_of_the_whole_tree() -> None:
    inner = "import time; x = b'x' * (120 * 2**20); time.sleep(0.4)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    found = succeeded([sys.executable, "-c", outer], follow=True)
    assert found.peak_bytes > 120 * 2**20
    assert 0.4 < found.wall_s < 30
    assert ran([sys.executable, "-c", "raise SystemExit(3)"]).code == 3
    with pytest.raises(RuntimeError, match="exited with 1: ValueError: no"):
        succeeded([sys.executable, "-c", "raise ValueError('no')"])
