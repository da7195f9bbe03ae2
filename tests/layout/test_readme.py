"""What the README and the docs show can be typed: commands, paths, links, requests, plans."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import shardwright
from shardwright.api.cli.main import cli
from shardwright.api.cli.verbs import VERBS
from shardwright.api.server.compute.requests import PLAN_ADAPTER
from shardwright.spec.plan.plan import load_plan

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MAX_PAGE_LINES = 150
MAX_README_BYTES = 10_000
SYSTEMS = 24


class Command(NamedTuple):
    """One command line of a shell block, and the page that shows it."""

    page: str
    words: tuple[str, ...]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for name, text in found if name == language]


def _commands() -> Iterator[Command]:
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                yield Command(page.name, tuple(shlex.split(line)))


COMMANDS = list(_commands())


def of(program: str) -> list[Command]:
    return [command for command in COMMANDS if program in command.words]


def text_of(command: Command) -> str:
    return " ".join((command.page, *command.words))


def parse(words: tuple[str, ...]) -> click.Context:
    """The context of a ``plan`` command line, with nothing run."""
    arguments = list(words[1:])
    if arguments and arguments[0] in VERBS:
        return VERBS[arguments[0]].make_context(arguments[0], arguments[1:])
    return cli.make_context("plan", arguments)


def test_the_parser_of_these_tests_refuses_what_the_command_refuses() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(("plan", "simulate", "--no-such-flag"))
    with pytest.raises(click.NoSuchOption):
        parse(("plan", "--no-such-flag"))


def test_shell_blocks_hold_the_commands_of_the_quickstart() -> None:
    programs = {command.words[0] for command in COMMANDS if command.page == "README.md"}
    assert {"plan", "make", "curl", "pip"} <= programs
    verbs = {command.words[1] for command in of("plan") if command.words[0] == "plan"}
    assert {"simulate", "explain", "execute", "serve", "--execute", "--model"} <= verbs


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.words[0] == "plan"], ids=text_of)
def test_plan_command_parses(command: Command) -> None:
    context = parse(command.words)
    left = [word for word in context.args if not word.startswith("-")]
    assert left == []


@pytest.mark.parametrize("command", of("make"), ids=text_of)
def test_make_target_exists(command: Command) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    asked = command.words[command.words.index("make") + 1 :]
    assert asked
    assert set(asked) <= set(targets)


@pytest.mark.parametrize("command", [c for c in of("torchrun") if "-m" in c.words], ids=text_of)
def test_torchrun_starts_a_module_of_ours(command: Command) -> None:
    module = command.words[command.words.index("-m") + 1]
    assert find_spec(module) is not None


def test_pip_names_extras_that_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for command in of("pip"):
        for extra in re.findall(r"\[([^\]]+)\]", command.words[-1]):
            assert re.search(rf"^{extra} = \[", project, re.M)


def test_curl_sends_a_request_that_the_service_takes() -> None:
    command = next(c for c in of("curl") if c.page == "README.md")
    words = command.words
    headers = [words[n + 1].casefold() for n, word in enumerate(words) if word == "-H"]
    assert sorted(headers) == ["content-type: application/json", "prefer: wait=30"]
    assert any(re.fullmatch(r"http://127\.0\.0\.1:\d+/v1/plans", word) for word in words)
    body = PLAN_ADAPTER.validate_json(words[words.index("-d") + 1])
    assert body.workload.global_batch is not None


def test_curl_asks_the_port_that_serve_takes() -> None:
    port = parse(("plan", "serve")).params["port"]
    assert any(f":{port}/" in word for word in of("curl")[0].words)


def _calls(source: str) -> Iterator[tuple[str, set[str | None]]]:
    """Name and keywords of every call of a function of the public face."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="sw"), attr=name), keywords=given):
                yield name, {keyword.arg for keyword in given}


def test_python_block_calls_what_there_is() -> None:
    sources = [source for page in PAGES for source in blocks(page, "python")]
    assert all(source.startswith("import shardwright as sw\n") for source in sources)
    calls = [call for source in sources for call in _calls(source)]
    assert len(calls) >= 4
    for name, given in calls:
        parameters = inspect.signature(getattr(shardwright, name)).parameters
        assert given <= {*parameters}


def tree_paths(block: str) -> list[str]:
    """Every path of the annotated tree: two spaces a level, the names first."""
    folders: list[str] = []
    paths = []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.findall(r"(?:^|(?<=\s))[\w./]+/(?=\s)", line):
            folders[depth:] = [name]
            paths.append("".join(folders))
    return paths


def test_every_path_of_the_tree_exists_and_no_subpackage_is_missing() -> None:
    (block,) = blocks(ARCHITECTURE, "text")
    paths = tree_paths(block)
    assert len(paths) == len(set(paths)) > 40
    missing = [
        p for p in paths if not ((ROOT / p).is_dir() if p[-1] == "/" else (ROOT / p).is_file())
    ]
    assert missing == []
    rooms = {
        f"{card.parent.relative_to(ROOT).as_posix()}/"
        for package in ROOT.glob("*/__init__.py")
        for card in [package, *package.parent.glob("*/__init__.py")]
    }
    assert rooms <= set(paths)


def test_modules_named_by_their_whole_path_exist() -> None:
    """Those of the table of systems that are not planned, and all in the text around it."""
    folders = "spec|datasets|costmodel|kernels|executor|planner|profiler|api|tests|docs"
    named = re.compile(rf"`((?:{folders})/[\w./-]*)`")
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            if "planned" in line or "NAME" in line or "techniques`" in line:
                continue
            for path in named.findall(line):
                assert (ROOT / path).exists(), (page.name, path)


def test_the_table_of_systems_is_counted_right() -> None:
    text = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
    table = text[text.index("| published system |") :].split("\n\n")[0].splitlines()[2:]
    groups: dict[str, list[str]] = {}
    for line in table:
        name, module, state = (cell.strip() for cell in line.strip("|").split("|"))
        if name.startswith("*"):
            group = groups.setdefault(name, [])
            continue
        assert state.startswith(("works", "planned")), name
        assert module.startswith("`"), name
        group.append(state)
    assert sum(len(states) for states in groups.values()) == SYSTEMS
    works = [[state.startswith("works") for state in states] for states in groups.values()]
    sums = [number for states in works for number in (len(states), sum(states))]
    line = next(line for line in re.split(r"\n\n", text) if line.startswith(f"{SYSTEMS} systems:"))
    assert [int(n) for n in re.findall(r"\d+", line)] == [SYSTEMS, *sums]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+://", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.is_file(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.M)
            assert anchor in {
                re.sub(r"[^\w -]", "", t).casefold().replace(" ", "-") for t in titles
            }


def test_the_plan_document_of_the_docs_is_a_legal_plan() -> None:
    (text,) = blocks(ROOT / "docs" / "plan-document.md", "json")
    plan = load_plan(text, "docs/plan-document.md")
    assert len(set(plan.layer_strategies())) > 1


def test_the_readme_is_short() -> None:
    assert README.stat().st_size <= MAX_README_BYTES


def test_docs_are_short() -> None:
    pages = {p.name: len(p.read_text(encoding="utf-8").splitlines()) for p in PAGES[4:]}
    assert len(pages) >= 3
    assert {name: n for name, n in pages.items() if n > MAX_PAGE_LINES} == {}
