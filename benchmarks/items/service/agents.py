"""A scripted client of `plan mcp` answers ten questions that people ask, by tool calls alone.

Each answer is held against the document of the same command on the command line; the seconds that a
search took are left out of both, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.paths import ROOT
from harness.shapes import PLANNING, Evidence, Item, Row, judged, unmeasured
from harness.work import Work

COMMAND = (sys.executable, "-P", "-m", "shardwright.api.cli.main")
SECONDS, CURVE_SECONDS = 5.0, 20.0
SAMPLES = ROOT / "tests" / "api"
WORK_SECONDS = "seconds"
"""The key of a search's own seconds in a report."""
JOB = {"model": "llama-3-8b", "cluster": "8xH100-80GB", "global_batch": 64, "seq_len": 4096}


@dataclass(frozen=True, slots=True)
class Question:
    """A question: the tool that answers it, with which arguments, in which time."""

    asked: str
    tool: str
    arguments: dict[str, Any]
    within_s: float = SECONDS


def _questions(folder: Path) -> Sequence[Question]:
    best, mine = str(folder / "best.json"), str(folder / "mine.json")
    log, framework = SAMPLES / "diagnose" / "samples", SAMPLES / "frameworks" / "samples"
    return (
        Question("What is the best plan of my model here?", "plan", {**JOB, "out": best}),
        Question("Does it fit with tp 2 and ZeRO-1, how fast is it?", "simulate",
                 {**JOB, "tp": 2, "shard": "zero1"}),
        Question("Why is a step that long?", "explain", {"plan_file": best}),
        Question("What does my configuration cost?", "import",
                 {"plan_file": str(framework / "torchtitan-00.toml"), "model": "llama-3-8b",
                  "cluster": "8xH100-80GB", "out": mine}),
        Question("Why is mine slower than the best?", "compare",
                 {"plan_files": [best, mine]}),
        Question("What if links were twice as fast?", "what_if",
                 {"plan_file": best, "set": ["intra_node.bandwidth=2x"]}),
        Question("What is the largest batch that fits?", "plan",
                 {"model": "gpt2", "cluster": "1xA100-40GB", "global_batch": 8, "seq_len": 1024,
                  "objective": "largest-batch:16"}),
        Question("Write it for torchtitan.", "export",
                 {"plan_file": best, "to": "torchtitan", "out": str(folder / "files")}),
        Question("Why is my run slow?", "diagnose",
                 {"path": str(log / "torchtitan.log"), "cluster": "8xH100-80GB"}),
        Question("How many H100 for 2 T tokens, for how long?", "size",
                 {"model": "llama-3-70b", "device": "H100-80GB", "tokens": "2T", "seq_len": 8192},
                 CURVE_SECONDS),
    )  # fmt: skip


def run(work: Work) -> Evidence:
    """Ask all questions of one server."""
    if find_spec("mcp") is None:
        what = "questions that a scripted client answers by tool calls alone"
        return Evidence(rows=[unmeasured(what, "needs mcp: pip install 'shardwright[mcp]'")])
    with tempfile.TemporaryDirectory() as scratch:
        questions = _questions(Path(scratch))
        answers = asyncio.run(_asked(questions))
        rows = [_row(q, *answer) for q, answer in zip(questions, answers, strict=True)]
    return Evidence(rows=list(_with_count(rows)))


async def _asked(questions: Sequence[Question]) -> list[tuple[Any, float]]:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "mcp"], env=dict(os.environ)
    )
    answers = []
    async with Client(stdio_client(server)) as client:
        await client.list_tools()
        for question in questions:
            begun = time.perf_counter()
            answer = await client.call_tool(question.tool, question.arguments)
            answers.append((answer, time.perf_counter() - begun))
    return answers


def _row(question: Question, answer: Any, seconds: float) -> Row:
    expected, line = _by_command(question)
    same = not answer.is_error and _timeless(answer.structured_content) == _timeless(expected)
    characters = sum(len(part.text) for part in answer.content)
    said = "the command's document" if same else f"another answer than {line!r}"
    return judged(
        question.asked,
        f"{question.tool}: {said}; {seconds:.1f} s; {characters:,} characters of text",
        f"the command's document, at most {question.within_s:g} s",
        same and seconds <= question.within_s,
        seconds=seconds,
        characters=characters,
    )


def _by_command(question: Question) -> tuple[Any, str]:
    """Document that the same command prints, typed as a person would."""
    words = [] if question.tool == "plan" else [question.tool.replace("_", "-")]
    for name, value in question.arguments.items():
        values = value if isinstance(value, list) else [value]
        if name in ("plan_file", "plan_files", "path"):
            words += values
        else:
            flag = f"--{name.replace('_', '-')}"
            words += [word for each in values for word in (flag, str(each))]
    done = subprocess.run(
        [*COMMAND, *words, "--json", "-"], capture_output=True, text=True, check=False
    )
    return (json.loads(done.stdout) if done.stdout else None), done.stderr.strip()


def _timeless(document: Any) -> Any:
    if isinstance(document, dict):
        return {k: _timeless(v) for k, v in document.items() if k != WORK_SECONDS}
    return [_timeless(item) for item in document] if isinstance(document, list) else document


def _with_count(rows: Sequence[Row]) -> Iterator[Row]:
    passed = sum(row.outcome == "PASS" for row in rows)
    yield judged(
        "questions that a scripted client answers by tool calls alone, in time",
        f"{passed} of {len(rows)}",
        "all",
        passed == len(rows),
    )
    yield from rows


ITEM = Item(
    name="agents",
    shows="A client of the Model Context Protocol gets the command's answers, in seconds.",
    target=(
        f"Every answer is the command's own document, within {SECONDS:g} s; the curve of sizes "
        f"within {CURVE_SECONDS:g} s."
    ),
    run=run,
    reads=(*PLANNING, "api/agents", "api/cli", "api/diagnose", "api/frameworks", "api/size"),
    timed=True,
)
