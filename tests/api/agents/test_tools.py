"""Verbs as tools: their table, schemas, words and answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from shardwright.api.agents.arguments import command_words
from shardwright.api.agents.call import Answer, call_tool
from shardwright.api.agents.tools import TOOL_VERBS, Tool, tools_of
from shardwright.api.cli.flags import RUN_FLAGS
from shardwright.api.cli.main import cli
from shardwright.spec.errors import InputError

LEFT_OUT = ("execute", "measure_top", *RUN_FLAGS)
GPT2 = {"model": "gpt2", "cluster": "8xH100-80GB", "global_batch": 64, "seq_len": 1024}


@pytest.fixture(scope="module")
def tools() -> dict[str, Tool]:
    return tools_of(cli, LEFT_OUT)


def answer(tools: Mapping[str, Tool], name: str, arguments: Any, limit_s: float = 50) -> Answer:
    return asyncio.run(call_tool(tools, name, arguments, limit_s))


def test_every_verb_that_answers_is_a_tool(tools: dict[str, Tool]) -> None:
    assert list(tools) == ["plan", *(verb.replace("-", "_") for verb in TOOL_VERBS)]
    runs = {"execute", "profile", "serve", "calibrate", "checkpoint", "data", "mcp"}
    assert set(cli.commands) - set(TOOL_VERBS) == runs


def test_a_schema_has_each_flag_of_its_verb(tools: dict[str, Tool]) -> None:
    for tool in tools.values():
        schema = tool.schema()
        left = {"json_target", *(LEFT_OUT if tool.name == "plan" else ())}
        names = {p.name for p in tool.command.params if not getattr(p, "is_eager", False)}
        assert {param.name for param in tool.params.values()} == names - left
        assert set(schema["properties"]) == set(tool.params)
        assert all(each["description"] for each in schema["properties"].values())
        assert len(tool.description) > 40
        json.dumps(schema)
    plan = tools["plan"].schema()["properties"]
    assert plan["global_batch"]["type"] == "integer"
    assert plan["deadline"]["exclusiveMinimum"] == 0
    assert plan["pin"]["type"] == "array"
    assert {"for", "objective"} <= set(plan)
    assert not {"execute", "steps", "json"} & set(plan)


def test_arguments_become_words_that_no_flag_hides_in(
    tools: dict[str, Tool], tmp_path: Path
) -> None:
    asked = {"plan_file": "--json=x", "set": ["nodes=2", "a=--b"], "deadline": 5, "add": None}
    words = command_words(tools["what_if"], asked, tmp_path)
    assert words == ["what-if", "--set=nodes=2", "--set=a=--b", "--deadline=5", "--", "--json=x"]


def test_a_file_s_content_stands_for_its_path(tools: dict[str, Tool], tmp_path: Path) -> None:
    asked = {"plan_file": {"name": "run.yaml", "text": "a: 1\n"}}
    words = command_words(tools["import"], asked, tmp_path)
    assert Path(words[-1]).name == "run.yaml"
    assert Path(words[-1]).read_text(encoding="utf-8") == "a: 1\n"


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("plan", {"modle": "gpt2"}, "modle: got an unknown argument; allowed: the arguments"),
        ("plan", {"model": True}, "model: got True; allowed: text or a number, or a file"),
        ("plan", {"pin": "tp=2"}, "pin: got tp=2; allowed: a list; nearest: ['tp=2']"),
        ("plan", {"out": {"name": "a", "text": "b"}}, "out: got"),
        ("import", {"plan_file": {"name": "../a", "text": ""}}, "plan_file.name: got ../a"),
        ("import", {"plan_file": {"name": "a"}}, "plan_file: got ['name']"),
        ("doctor", {"cluster": "8xH100"}, "model: got nothing; allowed: a value, as cluster has"),
        ("export", {"plan_file": {"name": "p.json", "text": "{}"}}, "out: got nothing"),
    ],
)
def test_what_is_wrong_is_one_line(
    tools: dict[str, Tool], tmp_path: Path, name: str, arguments: dict[str, Any], line: str
) -> None:
    with pytest.raises(InputError) as refused:
        command_words(tools[name], arguments, tmp_path)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_an_answer_is_the_command_s(tools: dict[str, Tool], plan_json: Any) -> None:
    found = answer(tools, "simulate", {**GPT2, "tp": 2})
    assert not found.is_error
    assert found.document == plan_json(
        "simulate", "--model", "gpt2", "--cluster", "8xH100-80GB",
        "--global-batch", "64", "--seq-len", "1024", "--tp", "2",
    )  # fmt: skip
    assert "plan: tp 2, pp 1, dp 4" in found.text


def test_a_command_s_error_is_its_line(tools: dict[str, Tool]) -> None:
    found = answer(tools, "simulate", {**GPT2, "tp": 7})
    assert (found.is_error, found.document) == (True, None)
    assert found.text.startswith("--tp x --pp: got 7 x 1 = 7")
    assert "\n" not in found.text
    found = answer(tools, "simulat", {})
    assert found.text.startswith("tool: got simulat; allowed: plan, simulate")
    assert found.text.endswith("nearest: simulate")


def test_a_call_ends_at_its_limit(tools: dict[str, Tool]) -> None:
    found = answer(tools, "simulate", GPT2, limit_s=0.05)
    assert found == Answer("no answer within 0.05 s", None, True)


def test_a_cancelled_call_ends_its_command(tools: dict[str, Tool]) -> None:
    async def cancelled() -> bool:
        call = asyncio.create_task(call_tool(tools, "simulate", GPT2))
        await asyncio.sleep(0.3)
        call.cancel()
        return isinstance((await asyncio.gather(call, return_exceptions=True))[0], BaseException)

    assert asyncio.run(cancelled())


def test_a_group_without_a_verb_has_no_tool_of_it() -> None:
    with pytest.raises(KeyError):
        tools_of(click.Group("plan"), ())
