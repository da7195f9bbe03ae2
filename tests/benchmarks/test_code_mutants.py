"""Faults that are put into code: each kind, in its place; and the verdict of an audit."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from harness import audit
from items.executor import code_mutants
from support.code_mutations import mutations

SOURCE = b'''\
"""A module: \xc3\xa9."""
from functools import cache


@cache
def f(a: int = 3, b: "Literal[1]" = None) -> bool:
    """Return."""
    if a < 2 and not b:
        raise ValueError(f"{a + 1}")
    g(a, b, key=1)
    return True
'''


def faulty(tmp_path: Path) -> dict[str, list[str]]:
    """For every kind of fault the changed lines."""
    (tmp_path / "m.py").write_bytes(SOURCE)
    found: dict[str, list[str]] = {}
    for mutation in mutations(tmp_path, "m.py"):
        changed = mutation.applied(SOURCE)
        ast.parse(changed)
        (line,) = [
            new
            for old, new in zip(SOURCE.splitlines(), changed.splitlines(), strict=True)
            if old != new
        ]
        assert SOURCE.splitlines()[mutation.line - 1].decode().strip() == mutation.code
        found.setdefault(mutation.kind, []).append(line.decode().strip())
    return found


def test_each_kind_of_fault_changes_its_line_and_no_other(tmp_path: Path) -> None:
    found = faulty(tmp_path)
    assert found["comparison"] == ["if (a <= 2) and not b:"]
    assert found["and/or"] == ["if (a < 2 or not b):"]
    assert found["not removed"] == ["if a < 2 and (b):"]
    assert found["condition turned"] == ["if (not (a < 2 and (not b))):"]
    assert found["statement removed"] == ["pass", "pass"]
    assert found["argument key removed"] == ["g(a, b)"] or found["argument key removed"] == [
        "(g(a, b))"
    ]
    assert found["arguments swapped"] == ["(g(b, a, key=1))"]
    assert found["return turned"] == ["return False"]
    assert found["decorator removed"] == [""]
    assert [line for line in found["constant + 1"] if line.startswith("def")] == [
        'def f(a: int = (4), b: "Literal[1]" = None) -> bool:'
    ]


def test_the_same_seed_draws_the_same_faults_from_every_folder() -> None:
    first, again = (code_mutants.draw(8, 3) for _ in range(2))
    assert first == again
    assert code_mutants.draw(8, 4) != first
    folders = [
        folder
        for folder in code_mutants.ROOMS
        for mutation in first
        if mutation.file.startswith(f"{folder}/")
    ]
    assert folders == [folder for folder in code_mutants.ROOMS for _ in range(2)]


def test_a_reviewed_fault_still_stands_in_its_file() -> None:
    for file, kind, code in code_mutants.equivalent():
        assert any(
            (mutation.kind, mutation.code) == (kind, code)
            for mutation in mutations(code_mutants.ROOT, file)
        ), (file, code)


def test_the_tests_of_a_line_are_the_shortest_that_run_it() -> None:
    mutation = code_mutants.Mutation("m.py", 3, "x", "comparison", 0, 1, "y")
    tests = [("long", 30.0), ("short", 0.1), ("elsewhere", 0.1), ("middle", 1.0)]
    lines = code_mutants.Lines(tests, {mutation.file: {str(mutation.line): [0, 1, 3]}})
    assert lines.of(mutation) == ["short", "middle"]
    assert code_mutants.Lines(tests, {}).of(mutation) == []


@pytest.mark.parametrize(
    ("package", "status", "said"),
    [
        ({"vulns": []}, 0, "audit: 1 packages looked up, 0 weaknesses"),
        (
            {"vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]},
            1,
            "a 1: CVE-1, mended by 2",
        ),
        ({"skip_reason": "not there"}, 2, "audit: 0 packages looked up, 0 weaknesses"),
    ],
)
def test_an_audit_tells_weaknesses_from_what_it_could_not_look_up(
    package: dict[str, Any], status: int, said: str
) -> None:
    found, lines = audit.verdict([{"name": "a", "version": "1", **package}])
    assert (found, lines[0]) == (status, said)


def test_an_audit_without_a_network_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text("#!/bin/sh\necho no network >&2; exit 1\n", encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "a.txt").write_text("", encoding="utf-8")
    assert audit.main(str(program), str(tmp_path)) == 2
    assert capsys.readouterr().out == "audit: a.txt could not be looked up here: no network\n"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'dependencies': []})}'\n", encoding="utf-8")
    assert audit.main(str(program), str(tmp_path)) == 0
