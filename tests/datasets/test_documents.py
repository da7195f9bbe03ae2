"""Typed documents: YAML that means one thing, and errors of one line for everything else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.datasets.catalogue.documents import MAX_BYTES, parse_yaml, read_document
from shardwright.spec.errors import InputError

SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc no1e9:-", max_size=6)
)
DOCUMENTS = st.dictionaries(
    st.text("abcdef_", min_size=1, max_size=8), SCALARS | st.lists(SCALARS, max_size=3), max_size=5
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("1e9", "1e9"),
        ("1.0e9", 1e9),
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("", None),
        ("~", None),
        ("-7", -7),
        ("'8'", "8"),
    ],
)
def test_scalars_mean_one_thing(text: str, value: object) -> None:
    parsed = parse_yaml(f"key: {text}\n", "x.yaml")["key"]
    assert parsed == value
    assert type(parsed) is type(value)


@given(DOCUMENTS)
def test_written_json_is_read_back_as_yaml(document: dict[str, object]) -> None:
    # JSON quotes every text, so YAML's shortcuts cannot change one.
    assert parse_yaml(json.dumps(document), "x.yaml") == document


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\n\tb: 2\n", "a tab at line 2"),
        ("a: 1\na: 2\n", "'a' twice"),
        ("a: {b: 1, b: 2}\n", "'b' twice"),
        ("a: &x [1]\nb: *x\n", "an anchor or alias at line 1"),
        ("<<: {a: 1}\n", "a merge key"),
        ("a: !!python/object/apply:os.system [x]\n", "a tag at line 1"),
        ("1: 2\n", "key 1 is not a text"),
        ("a: 1\n---\nb: 2\n", "another document"),
        ("a: [1\n", "line 2"),
        ("[" * 5000, "nesting"),
        ("a: \x07\n", "control characters"),
    ],
)
def test_yaml_that_means_several_things_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x.yaml")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text("abc01:-[]{}&*!%@`'\"#|>? \n\t,.", max_size=40))
def test_any_text_is_yaml_or_one_line(text: str) -> None:
    problem = ""
    try:
        parse_yaml(text, "x.yaml")
    except InputError as error:
        problem = str(error)
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("e.yaml", b"", "an empty file"),
        ("e.json", b" \n", "an empty file"),
        ("l.yaml", b"- 1\n", "got list"),
        ("t.json", b'{"a": 1,}', "line 1 column 9"),
        ("d.json", b'{"a": 1, "a": 2}', "'a' twice"),
        ("b.yaml", b"\xff\xfe\x00\x01", "binary data"),
        ("big.yaml", b"a: 1\n" * (MAX_BYTES // 5 + 1), "bytes"),
    ],
)
def test_files_that_hold_no_document(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_document(path, "a model file")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("a: 1\n")
    with pytest.raises(InputError) as caught:
        read_document(tmp_path / "clusters.yaml", "a cluster file")
    assert caught.value.nearest == "cluster.yaml"
    with pytest.raises(InputError, match="a folder"):
        read_document(tmp_path, "a cluster file")


def test_the_pure_python_loader_reads_the_same() -> None:
    # Where PyYAML was built without its C library the same class stands on SafeLoader.
    code = (
        "import yaml\n"
        "vars(yaml).pop('CSafeLoader', None)\n"
        "from shardwright.datasets.catalogue.documents import parse_yaml\n"
        "print(parse_yaml('a: [1, two, {b: no, c: 1e9, d: true, e: }]', 'x'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = {"a": [1, "two", {"b": "no", "c": "1e9", "d": True, "e": None}]}
    assert done.stdout.strip() == str(expected)
    assert parse_yaml("a: [1, two, {b: no, c: 1e9, d: true, e: }]", "x") == expected
