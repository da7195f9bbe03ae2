"""Every mistake of cases.toml is answered by one clear line and the right exit code."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))["case"]
NAMES = [case["name"] for case in CASES]
KEYS = {
    "name", "argv", "exit", "says", "never", "files", "bytes", "folders", "plan", "process",
    "whole",
}  # fmt: skip
MAX_LINE, MAX_WHOLE_LINE = 300, 1200


def test_the_corpus_is_whole() -> None:
    assert len(CASES) >= 60
    assert len(set(NAMES)) == len(NAMES)
    assert sum(case.get("process", False) for case in CASES) >= 15
    for case in CASES:
        assert set(case) <= KEYS
        assert case["says"]


def _changed(report: Any, changes: list[list[Any]]) -> Any:
    """The plan of ``report`` with the value at each dotted path replaced."""
    document = copy.deepcopy(report["plan"])
    for path, value in changes:
        *way, last = path.split(".")
        place = document
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place[key]
        place[int(last) if isinstance(place, list) else last] = value
    return document


def _prepare(case: dict[str, Any], report: Any, folder: Path) -> None:
    for name in case.get("folders", ()):
        (folder / name).mkdir()
    for name, text in case.get("files", {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, digits in case.get("bytes", {}).items():
        (folder / name).write_bytes(bytes.fromhex(digits))
    if "plan" in case:
        document = _changed(report, case["plan"])
        (folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_mistake(
    case: dict[str, Any],
    base_report: Any,
    plan: Callable[..., Any],
    process: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _prepare(case, base_report, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = process(*case["argv"], cwd=tmp_path) if case.get("process") else plan(*case["argv"])
    said = result.err
    assert result.code == case.get("exit", 2), said
    assert result.out == ""
    assert said.endswith("\n")
    assert said.count("\n") == 1, said
    assert len(said) <= (MAX_WHOLE_LINE if case.get("whole") else MAX_LINE) + 1
    assert "Traceback" not in said
    assert "internal error" not in said
    for word in case["says"]:
        assert word in said, f"{word!r} is missing in {said!r}"
    for word in case.get("never", ()):
        assert word not in said
