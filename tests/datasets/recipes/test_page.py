"""The blocks of docs/data-recipes.md: its recipe is one, its commands and its Python run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from shardwright.api.cli.main import cli
from shardwright.datasets.pipelines.shipped import STAGES
from shardwright.datasets.recipes.recipe import recipe_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "data-recipes.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small ``recipe.yaml``."""
    lines = [json.dumps({"text": f"text {n} of a few"}) + "\n" for n in range(9)]
    (tmp_path / "part.jsonl").write_text("".join(lines))
    keys = {"sources": [{"name": "s", "domain": "web", "path": "part.jsonl"}]}
    (tmp_path / "recipe.yaml").write_text(json.dumps(keys))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_recipe_of_the_page_is_one() -> None:
    (text,) = [text for language, text in BLOCKS if language == "yaml"]
    recipe = recipe_of(yaml.safe_load(text), "page", STAGES)
    assert len(recipe.stages) == 5
    assert recipe.windows.tokens == 8192


def test_every_stage_is_in_the_table() -> None:
    table = PAGE.read_text("utf-8")
    assert all(f"| `{stage.name}` |" in table for stage in STAGES)


def test_the_commands_of_the_page_run(folder: Path) -> None:
    (text,) = [text for language, text in BLOCKS if language == "sh"]
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("plan data")]
    assert len(commands) == 3
    for words in commands:
        done = CliRunner().invoke(cli, words[1:])
        assert done.exit_code == 0, done.exception


def test_the_python_of_the_page_runs(folder: Path) -> None:
    (text,) = [text for language, text in BLOCKS if language == "python"]
    made: dict[str, object] = {}
    exec(compile(text, "page", "exec"), made)
    assert repr(made["prepared"]).startswith("<PreparedData: ")
    assert "windows" not in repr(made["recipe"])
