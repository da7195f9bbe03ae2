"""Server of the Model Context Protocol over standard input and output.

The only file that loads the package ``mcp``, the extra of that name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from ... import __version__
from ...spec.errors import RunError
from .call import call_tool
from .tools import Tool, tools_of

NEEDS_MCP = "plan mcp needs the package mcp: pip install 'shardwright[mcp]'"
INSTRUCTIONS = (
    "Predicts, searches and explains parallel training plans of large models. Tools are the verbs "
    "of the command plan, their arguments its flags; the structured content of an answer is the "
    "document of --json. Give plan an argument out, and the file to the tools that take a plan."
)


def serve_tools(group: click.Group, left_out: Sequence[str], limit_s: float) -> None:
    """Answer calls until standard input ends.

    Args:
        group: the command whose verbs are tools.
        left_out: its own parameters that no tool has.
        limit_s: seconds of a call.

    Raises:
        RunError: the package ``mcp`` is missing.
    """
    try:
        from mcp.server.lowlevel.server import Server
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise RunError(NEEDS_MCP) from None
    import mcp_types as types

    tools = tools_of(group, left_out)

    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=[_listed(types, tool) for tool in tools.values()])

    async def call(context: Any, params: Any) -> Any:
        answer = await call_tool(tools, params.name, params.arguments or {}, limit_s)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)],
            structured_content=answer.document,
            is_error=answer.is_error,
        )

    async def answer_calls() -> None:
        server = Server(
            "shardwright",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=list_tools,
            on_call_tool=call,
        )
        async with stdio_server() as (source, target):
            await server.run(source, target, server.create_initialization_options())

    asyncio.run(answer_calls())


def _listed(types: Any, tool: Tool) -> Any:
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema())
