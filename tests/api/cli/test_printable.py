"""Texts of documents on a terminal and in HTML: shown, and never acted upon."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from shardwright.api.html.text import escape
from shardwright.api.terminal.console import PrintableConsole, console

Plan = Callable[..., Any]
NAME = "red\x1b[31m\rback\u202eturned\nforged\x9b2J\t\x07"
SHOWN = r"red\x1b[31m"
SIZES = ("--cluster", "8xH100", "--seq-len", "1024", "--global-batch", "64")


@pytest.fixture
def files(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """a.json and b.json, plans of a model of that name."""
    monkeypatch.chdir(tmp_path)
    for name, strategy in (("a", ("--tp", "2")), ("b", ())):
        flags = ("--model", "gpt2", *SIZES, *strategy, "--json", f"{name}.json")
        assert plan("simulate", *flags).code == 0
        document = json.loads(Path(f"{name}.json").read_text())["plan"]
        [model] = document["models"].values()
        model["name"] = NAME + name  # another one, which compare tells
        Path(f"{name}.json").write_text(json.dumps(document))


def _is_printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "verb",
    [
        ("simulate", "a.json"),
        ("explain", "a.json"),
        ("compare", "a.json", "b.json"),
        ("what-if", "a.json", "--set", "global_batch=2x"),
        ("export", "a.json", "--to", "svg"),
        ("execute", "a.json"),
    ],
    ids=" ".join,
)
def test_no_verb_prints_what_a_terminal_acts_on(plan: Plan, verb: tuple[str, ...]) -> None:
    said = plan(*verb)
    assert said.code == 0 or verb[0] == "execute", said.err
    assert said.out or said.err
    assert _is_printable(said.out + said.err)
    assert not any(line.startswith("forged") for line in said.out.split("\n"))
    if verb[0] in ("simulate", "explain", "compare"):
        assert SHOWN in said.out.replace("\n", "")


@pytest.mark.usefixtures("files")
def test_no_picture_or_page_holds_them(plan: Plan) -> None:
    assert plan("export", "a.json", "--to", "svg", "--out", "a.svg").code == 0
    assert _is_printable(Path("a.svg").read_text())


@given(st.text())
def test_any_text_is_shown_printably_wherever_it_stands(text: str) -> None:
    stream = io.StringIO()
    out = console(stream)
    table = Table(text, title=text)
    table.add_column(Text(text))
    table.add_row(text, Text.assemble((text, "bold"), "after"))
    out.print(text, Text(text, style="red"))
    out.print(Text.assemble(("a", "bold"), text, ("b", "red")), overflow="fold")
    out.print(table)
    assert _is_printable(stream.getvalue())


@given(st.text())
def test_any_text_is_printable_in_html(text: str) -> None:
    assert escape(text).isprintable()
    assert "<" not in escape(text)


def test_styles_stay_with_their_characters() -> None:
    stream = io.StringIO()
    out = PrintableConsole(file=stream, force_terminal=True, color_system="standard", width=80)
    out.print(Text.assemble(("\x1b", "bold"), "b"))
    assert stream.getvalue() == "\x1b[1m\\x1b\x1b[0mb\n"
