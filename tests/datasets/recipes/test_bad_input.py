"""Bad recipes, sources and folders: one line each, with the nearest where there is one."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from shardwright.api.cli.main import cli
from shardwright.datasets.pipelines.shipped import STAGES
from shardwright.datasets.preparation import prepare as engine
from shardwright.datasets.preparation.prepare import prepare
from shardwright.datasets.preparation.result import read_data
from shardwright.datasets.recipes.read_recipe import read_recipe
from shardwright.datasets.recipes.recipe import Recipe, recipe_of
from shardwright.datasets.sources.readers import read_texts
from shardwright.datasets.sources.source_files import source_files
from shardwright.spec.errors import InputError

SOURCE = {"name": "s", "domain": "web", "path": "part.jsonl"}


def keys(**more: Any) -> dict[str, Any]:
    return {"sources": [SOURCE], **more}


def recipe(**more: Any) -> Recipe:
    return recipe_of(keys(**more), "r.yaml", STAGES)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"stages": ["near_duplicate"]}, r"got near_duplicate; .*; nearest: near_duplicates"),
        ({"stages": [{"rules": {"least_word": 3}}]}, r"got least_word; .*nearest: least_words"),
        ({"stages": ["rules", "rules"]}, r"rules twice; allowed: each stage once"),
        ({"stages": ["windows"]}, r"windows; allowed: windows as a key of the recipe"),
        ({"stages": "rules"}, r"stages: got rules; allowed: a list"),
        ({"stags": []}, r"got stags; .*nearest: stages"),
        ({"sources": []}, r"sources"),
        ({"sources": [SOURCE, SOURCE]}, r"s twice; allowed: each name once"),
        ({"sources": [{**SOURCE, "pth": "x"}]}, r"got pth; .*nearest: path"),
        ({"mixture": {"weights": {"web": 0.5}}}, r"a sum of 0.5; allowed: weights that sum to 1"),
        ({"mixture": {"weights": {"wob": 1.0}}}, r"got wob; allowed: .*; nearest: web"),
        ({"mixture": {"weights": {}}}, r"got none for web; .*nearest: web: 0"),
        ({"windows": {"tokens": 10**12}}, r"windows: tokens: got 1000000000000"),
        ({"windows": {"tokens": 64, "order": "likenes"}}, r"got likenes"),
        ({"stages": [{"near_duplicates": {"bands": 33}}]}, r"bands: got 33; .*; nearest: 32"),
        ({"schema_version": 2}, r"schema_version: got 2; allowed: 1; nearest: 1"),
        ({"seed": -1}, r"seed: got -1"),
    ],
)
def test_a_bad_recipe_is_one_line(more: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        recipe(**more)
    assert "\n" not in str(caught.value)


def test_equal_recipes_have_equal_hashes(tmp_path: Path) -> None:
    plain = recipe(stages=["rules"])
    said = recipe(stages=[{"name": "rules", "value": {"least_words": 20}}], tokenizer="bytes")
    assert plain.hash == said.hash
    assert plain.hash != recipe(stages=[{"rules": {"least_words": 21}}]).hash
    assert recipe_of(plain.document(), "again", STAGES) == plain
    (tmp_path / "r.yaml").write_text("sources: [{name: s, domain: web, path: part.jsonl}]\n"
                                     "stages: [rules]\n")  # fmt: skip
    assert read_recipe(tmp_path / "r.yaml", STAGES) == plain


class Broken(NamedTuple):
    name: str
    write: Callable[[Path], object]
    line: str


def zst(path: Path) -> None:
    zstandard = pytest.importorskip(
        "zstandard", reason="no zstandard here: the extra data brings it"
    )
    data = zstandard.ZstdCompressor().compress(b'{"text": "a"}\n' * 5000)
    path.write_bytes(data[: len(data) // 2] + b"no zstandard")


def parquet(path: Path) -> None:
    pytest.importorskip("pyarrow", reason="no pyarrow here: the extra data brings it")
    path.write_bytes(b"PAR1 and no more")


BROKEN = [
    Broken("a.jsonl", lambda p: p.write_text('{"text": "a"}\n{"text": \n'), r"a.jsonl line 2: got"),
    Broken("b.jsonl", lambda p: p.write_text('{"txt": "a"}\n'), r"b.jsonl line 1: got no text"),
    Broken("c.jsonl.gz", lambda p: p.write_bytes(gzip.compress(b"{}" * 999)[:20]), r"c.jsonl.gz: "),
    Broken("d.jsonl.gz", lambda p: p.write_bytes(b"no gzip"), r"d.jsonl.gz: got .*gzip"),
    Broken("e.jsonl.zst", zst, r"e.jsonl.zst: got"),
    Broken("f.parquet", parquet, r"f.parquet: got"),
    Broken("g.warc", lambda p: p.write_bytes(b"no record\r\n"), r"g.warc record 1: got no record"),
    Broken("h.warc", lambda p: p.write_bytes(b"WARC/1.0\r\nContent-Length: 9\r\n\r\nabc"),
           r"h.warc record 1: got 3 bytes; allowed: the 9"),
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=[b.name for b in BROKEN])
def test_a_broken_shard_is_named_with_its_line(tmp_path: Path, broken: Broken) -> None:
    broken.write(tmp_path / broken.name)
    made = recipe_of({"sources": [{**SOURCE, "path": broken.name}]}, "r", STAGES)
    (file,) = source_files(made, tmp_path)
    with pytest.raises(InputError, match=broken.line) as caught:
        list(read_texts(file, made.sources[0]))
    assert "\n" not in str(caught.value)


def test_every_format_gives_its_texts(tmp_path: Path) -> None:
    for module in ("zstandard", "pyarrow", "trafilatura"):
        pytest.importorskip(module, reason=f"no {module} here: the extra data brings it")
    import pyarrow
    import pyarrow.parquet
    import zstandard

    lines = b'{"text": "one\\r", "id": "a"}\n\n{"text": "two", "id": 7}\n'
    page = b"<html><body><article><p>" + b"A page with words. " * 30 + b"</p></article></html>"
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(lines))
    table = pyarrow.table({"text": ["one\r", "two"], "id": ["a", "7"], "more": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    (tmp_path / "e.html").write_bytes(page)
    head = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x\r\n"
    head += f"Content-Length: {len(reply)}"
    (tmp_path / "f.warc").write_bytes(head.encode() + b"\r\n\r\n" + reply + b"\r\n\r\n")
    (tmp_path / "g.txt").write_bytes(b"plain\r\ntext")
    made = recipe_of({"sources": [{**SOURCE, "path": "."}]}, "r", STAGES)
    texts = {
        file.name: list(read_texts(file, made.sources[0])) for file in source_files(made, tmp_path)
    }
    records = [("a", "one\r"), ("7", "two")]
    assert all(
        texts[name] == records for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet")
    )
    assert texts["g.txt"] == [("g.txt", "plain\ntext")]
    ((_, extracted),) = texts["e.html"]
    assert extracted.startswith("A page with words.")
    assert texts["f.warc"] == [("http://x", extracted)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [json.dumps({"id": str(n), "text": f"text {n} of many"}) + "\n" for n in range(20)]
    (tmp_path / "part.jsonl").write_text("".join(lines))
    (tmp_path / "r.json").write_text(json.dumps(keys(stages=["exact_duplicates"])))
    return tmp_path


def test_folders_of_others_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(recipe(), folder, folder / "out", STAGES)
    prepare(recipe(), folder, folder / "out", STAGES)  # finished: nothing to do
    with pytest.raises(InputError, match=r"of recipe sha256:.*; allowed: that of this one"):
        prepare(recipe(seed=1), folder, folder / "out", STAGES)
    with pytest.raises(InputError, match="with other files; allowed: a new or empty folder"):
        prepare(recipe(), folder, folder, STAGES)
    usage = shutil.disk_usage(folder)._replace(free=10)
    monkeypatch.setattr(engine.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match="0 MiB free; allowed: a disk with room"):
        prepare(recipe(), folder, folder / "full", STAGES)
    assert not (folder / "full").exists()


def test_a_preparation_begun_with_other_sources_is_refused(folder: Path) -> None:
    def stop(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(recipe(), folder, folder / "out", STAGES, None, stop)
    with (folder / "part.jsonl").open("a") as file:
        file.write('{"text": "more"}\n')
    with pytest.raises(InputError, match="begun with another files"):
        prepare(recipe(), folder, folder / "out", STAGES)


def test_missing_sources_name_the_nearest(folder: Path) -> None:
    with pytest.raises(InputError, match=r"got .*prt.jsonl; .*; nearest: part.jsonl"):
        source_files(recipe_of({"sources": [{**SOURCE, "path": "prt.jsonl"}]}, "r", STAGES), folder)
    none = recipe_of({"sources": [{**SOURCE, "path": ".", "pattern": "*.none"}]}, "r", STAGES)
    with pytest.raises(InputError, match="no file; allowed: files of the pattern"):
        source_files(none, folder)


def typed(*words: str) -> Any:
    return CliRunner().invoke(cli, ["data", *words], catch_exceptions=True)


def test_the_verb_prepares_shows_and_estimates(folder: Path) -> None:
    done = typed(str(folder / "r.json"), "--out", str(folder / "out"), "--jobs", "2")
    assert done.exit_code == 0, done.exception
    assert "exact_duplicates" in done.output
    shown = typed(str(folder / "out"), "--json", "-")
    assert json.loads(shown.output) == read_data(folder / "out")
    guessed = typed(str(folder / "r.json"), "--dry-run", "--sample", "100%", "--json", "-")
    estimate = json.loads(guessed.output)
    assert estimate["stages"][-1]["out"] == read_data(folder / "out")["stages"][-1]["total"]["out"]
    assert "estimate" in typed(str(folder / "r.json"), "--dry-run", "--sample", "50%").output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["r.json"], "--out: got nothing"),
        (["r.json", "--out", "x", "--dry-run"], "x with --dry-run"),
        (["r.json", "--out", "x", "--sample", "0%"], "--sample: got 0%"),
        (["r.json", "--out", "x", "--sample", "1"], "nearest: 1%"),
        ([".", "--out", "x"], "--out: got with the folder"),
        (["."], "data.json: got no such file"),
        ([], "RECIPE.yaml: got nothing"),
    ],
)
def test_flags_that_do_not_go_together(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], line: str
) -> None:
    monkeypatch.chdir(folder)
    failed = typed(*words)
    assert isinstance(failed.exception, InputError)
    assert line in str(failed.exception)


def test_this_process_loads_no_library_of_the_extra(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from shardwright.api.recipes.prepare_data import prepare_data, recipe_at\n"
        f"path = Path({str(folder / 'r.json')!r})\n"
        "prepare_data(recipe_at(path), path.parent, path.parent / 'out')\n"
        "names = 'sklearn scipy datasketch pyarrow py3langid trafilatura zstandard torch'.split()\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
