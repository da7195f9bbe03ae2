"""One call of a tool: the command in a child process, its text and its document."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...spec.errors import InputError, ShardwrightError, nearest_name
from ..cli.errors import one_line
from .arguments import command_words
from .tools import Tool

MODULE = "shardwright.api.cli.main"
LIMIT_S = 600.0
"""Seconds after which a call is interrupted: a search then answers with its best plan so far."""
GRACE_S = 10.0
"""Seconds that an interrupted command has left."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Output of a command: text, JSON document if it made one, whether it failed."""

    text: str
    document: dict[str, Any] | None
    is_error: bool


async def call_tool(
    tools: Mapping[str, Tool], name: str, arguments: Mapping[str, Any], limit_s: float = LIMIT_S
) -> Answer:
    """Run a tool's command; errors are answers of one line.

    The child ends with the task that waits for it.
    """
    tool = tools.get(name)
    try:
        if tool is None:
            raise InputError("tool", name, ", ".join(tools), nearest_name(name, list(tools), 1))
        with tempfile.TemporaryDirectory(prefix="shardwright-") as scratch:
            texts = Path(scratch, "texts")
            texts.mkdir()
            words = command_words(tool, arguments, texts)
            return await _run(_with_json(words, Path(scratch, "answer.json")), limit_s)
    except ShardwrightError as error:
        return Answer(one_line(error), None, True)


def _with_json(words: Sequence[str], target: Path) -> tuple[list[str], Path]:
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], f"--json={target}", *words[end:]], target


async def _run(command: tuple[list[str], Path], limit_s: float) -> Answer:
    words, target = command
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", MODULE, *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    interrupted = asyncio.Event()
    timer = asyncio.create_task(_interrupt_after(child, limit_s, interrupted))
    try:
        out, err = await child.communicate()
    finally:
        timer.cancel()
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    text, said = out.decode("utf-8", "replace").strip(), err.decode("utf-8", "replace").strip()
    document = json.loads(target.read_text(encoding="utf-8")) if target.is_file() else None
    if child.returncode:
        late = f"no answer within {limit_s:g} s"
        text = "\n".join(part for part in (text, late if interrupted.is_set() else said) if part)
    return Answer(text, document, child.returncode != 0)


async def _interrupt_after(
    child: asyncio.subprocess.Process, limit_s: float, interrupted: asyncio.Event
) -> None:
    await asyncio.sleep(limit_s)
    interrupted.set()
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
        await asyncio.sleep(GRACE_S)
        child.kill()
