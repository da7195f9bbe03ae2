"""`plan mcp`: refused without its extra, driven by the real client with it."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from shardwright.api.agents.mcp_server import NEEDS_MCP
from shardwright.api.cli.main import run

WANTS_MCP = pytest.mark.skipif(
    find_spec("mcp") is None, reason="no mcp here: the extra mcp brings it"
)
DEMO = {"model": "gpt2", "cluster": "8xH100-80GB", "global_batch": 64, "seq_len": 1024}


def test_without_the_package_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel.server", None)
    assert run(("mcp",)) == 4
    assert capsys.readouterr().err == f"{NEEDS_MCP}\n"
    assert "pip install 'shardwright[mcp]'" in NEEDS_MCP


async def _called(*calls: tuple[str, dict[str, Any]]) -> tuple[list[str], list[Any]]:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "shardwright.api.cli.main", "mcp"],
        env=dict(os.environ),
    )
    with open(os.devnull, "w") as errors:
        async with Client(stdio_client(server, errlog=errors)) as client:
            listed = await client.list_tools()
            names = [tool.name for tool in listed.tools]
            return names, [await client.call_tool(name, asked) for name, asked in calls]


@WANTS_MCP
def test_a_client_lists_and_calls_tools(plan_json: Any) -> None:
    names, (priced, refused) = asyncio.run(
        _called(("simulate", {**DEMO, "tp": 2}), ("simulate", {**DEMO, "tpp": 2}))
    )
    assert names[:3] == ["plan", "simulate", "what_if"]
    assert not priced.is_error
    assert priced.structured_content == plan_json(
        "simulate", "--model", "gpt2", "--cluster", "8xH100-80GB",
        "--global-batch", "64", "--seq-len", "1024", "--tp", "2",
    )  # fmt: skip
    assert refused.is_error
    (said,) = refused.content
    assert said.text.startswith("tpp: got an unknown argument")
