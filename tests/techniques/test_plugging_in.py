"""A technique plugs in by its own files and one line in each tuple."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from published.systems_table import missing_rows
from toys.census_value import MODES, NAME, TECHNIQUE
from toys.programs.averaging_value import NAME as PROGRAM
from toys.programs.averaging_value import TECHNIQUE as AVERAGING

from shardwright.api.cli.verbs import technique_option
from shardwright.api.planning.uniform_plan import CORE_FLAGS, UniformStrategy, strategy_flags
from shardwright.api.server.compute.requests import StrategyFields, strategy_body
from shardwright.spec.techniques import TECHNIQUES

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("spec", "costmodel", "planner", "executor", "api", "profiler", "datasets")
OWN_FOLDERS = {"techniques", "frameworks"}
"""Rooms that say a technique by name; a framework's folder says it in the framework's keys."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """The ways in of a process that has one technique more."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'support')!r})\n"
        "from toys.ways_in import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def words_of(document: dict[str, Any]) -> list[str]:
    """The modes of the census in a plan, by run of layers."""
    parts = document["plan"]["programs"][0]["stages"][0]["virtual_stages"][0]
    values = [part.get("strategy", {}).get("techniques", {}).get(NAME) for part in parts]
    return ["none" if value is None else value.get("mode", "each") for value in values]


def test_help_lists_its_flag(shown: dict[str, Any]) -> None:
    text = " ".join(shown["help"].split())
    assert f"--gradient-census {TECHNIQUE.metavar} {TECHNIQUE.help}" in text


@pytest.mark.parametrize("way", ["simulated", "python", "service"])
def test_flag_argument_and_field_price_it(shown: dict[str, Any], way: str) -> None:
    assert words_of(shown[way]) == ["none", "each", "none"]
    assert shown[way]["prediction"] == shown["python"]["prediction"]
    assert shown[way]["prediction"]["breakdown_s"][NAME] > 0


def test_pins_fix_it(shown: dict[str, Any]) -> None:
    assert words_of(shown["planned"]) == ["none", "held", "none"]
    assert shown["planned"]["search"]["space"][NAME] == ["held", "none"]


def test_a_wrong_word_is_refused_with_the_right_ones(shown: dict[str, Any]) -> None:
    assert shown["refusal"] == f"{NAME}: got often; allowed: none, {', '.join(MODES)}"


def test_the_service_describes_its_field(shown: dict[str, Any]) -> None:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    described = shown["openapi"]["components"]["schemas"].pop("StrategyBody")
    shipped = document["components"]["schemas"].pop("StrategyBody")
    for name in (NAME, PROGRAM, "sign_updates"):
        assert described["properties"].pop(name)["anyOf"][-1] == {"type": "null"}
    assert described == shipped
    assert shown["openapi"] == document


@pytest.mark.parametrize("way", ["simulated", "python", "service"])
def test_values_of_programs_are_flags_arguments_and_fields(shown: dict[str, Any], way: str) -> None:
    (line,) = [line for line in shown["help"].splitlines() if "averaged-weights" in line]
    assert line.split()[:2] == ["--averaged-weights", AVERAGING.metavar]
    report = shown["program"][way]
    assert report["plan"]["programs"][0]["techniques"] == {PROGRAM: {"pull": 0.5}}
    assert report["prediction"] == shown["program"]["python"]["prediction"]
    assert report["prediction"]["breakdown_s"][PROGRAM] > 0
    assert report["assumptions"][0]["value"] == f"{PROGRAM}=pull:0.5"


def test_pins_and_searches_choose_values_of_programs(shown: dict[str, Any]) -> None:
    planned, allowed = shown["program"]["planned"], shown["program"]["allowed"]
    assert planned["plan"]["programs"][0]["techniques"] == {PROGRAM: {"every": 4}}
    assert planned["search"]["space"][PROGRAM] == ["4"]
    assert allowed["search"]["space"][PROGRAM] == ["2", "4", "none"]


def test_wrong_values_of_programs_are_refused_in_one_line(shown: dict[str, Any]) -> None:
    parts = {
        "unknown word": "got 3; allowed: none, 2, 4, pull:0.25..1",
        "outside the family": "nearest: pull:0.25",
        "on layers": "without @LAYERS",
        "two pins": "one value",
        "a layer's on a program": f"{NAME} belongs to layers, not to a whole program",
        "a program's on layers": f"{PROGRAM} belongs to a whole program, not to layers",
        "one state": f"{PROGRAM} and cpu_offload both claim the parameters",
    }
    assert {*shown["refused"]} == {*parts}
    for name, (status, text) in shown["refused"].items():
        assert status == 2, (name, text)
        assert parts[name] in text
        assert text.count("\n") == 1


def test_every_way_in_takes_the_tuple() -> None:
    core = tuple(item.name for item in fields(StrategyFields))
    assert core == CORE_FLAGS
    for techniques in ((), TECHNIQUES, (TECHNIQUE,)):
        names = (*CORE_FLAGS, *(technique.name for technique in techniques))
        assert strategy_flags(techniques) == names
        assert tuple(item.name for item in fields(strategy_body(techniques))) == names
    flags = UniformStrategy.from_flags({"tp": 2, NAME: "held", "model": "m"}, (TECHNIQUE,))
    assert flags == UniformStrategy(tp=2, techniques={NAME: "held"})

    @click.command
    @technique_option(TECHNIQUE)
    def command(**flags: Any) -> None:
        """Take the flag."""

    assert command.make_context("it", [TECHNIQUE.flag, "held"]).params == {NAME: "held"}


def _outside() -> Iterator[Path]:
    """Product files that are no technique's own."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".js", ".html") and OWN_FOLDERS.isdisjoint(
                path.relative_to(ROOT).parts
            ):
                yield path


def test_nothing_else_knows_a_technique_by_name() -> None:
    """Names that are words of torch, or settings of stacks, are looked for in imports alone."""
    names = {technique.name for technique in TECHNIQUES}
    settings = tomllib.loads((ROOT / "datasets/catalogue/stack_settings.toml").read_text())
    own = sorted(name for name in names - {*settings["settings"]} if "_" in name)
    long = re.compile("|".join(rf"\b{name}\b" for name in own))
    for path in _outside():
        text = path.read_text(encoding="utf-8")
        assert not long.search(text), path
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                *above, last = node.module.split(".")
                assert not (above and above[-1] == "techniques" and last in names), path
                imported = {alias.name for alias in node.names}
                assert not (last == "techniques" and imported & names), path


def test_the_table_of_systems_has_the_rows_of_the_tuple() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    assert missing_rows(pages, TECHNIQUES) == []
    published = replace(TECHNIQUE, systems=("Census",))
    assert missing_rows(pages, (*TECHNIQUES, published)) == [
        f"Census: a row that names techniques/{NAME}.py"
    ]
    row = f"| Census | `techniques/{NAME}.py` |"
    assert missing_rows([f"| published system |\n{row} works |"], (published,)) == []
    planned = [f"| published system |\n{row} planned |"]
    assert missing_rows(planned, (published,)) == [f"{NAME}: built, but its row says planned"]
