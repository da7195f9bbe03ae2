"""Time of plan, help and import as whole processes, and modules loaded."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.processes import Ran, plan_command, question_words, succeeded
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from support.lever_search import searched

REPEATS = 5
MIB = 2**20
PLAN_LIMIT_S, HELP_LIMIT_S, IMPORT_LIMIT_S = 5.0, 0.5, 0.2
TREE_LIMIT_BYTES = 2**30
LONGEST_TRIED, PAIRS = 1.2, 3
TRIED_ON = ("llama-3-70b", "llama-3-8b")
"""Questions of ``support.lever_search``."""
HEAVY = ("torch", "xgboost", "sklearn", "pandas")


QUESTIONS = (
    question_words("llama-3-70b", "8x8xH100-80GB", 512, 8192),
    question_words("mixtral-8x7b", "8x8xH100-80GB", 512, 4096),
    question_words("deepseek-v3", "64x8xH100-80GB", 4096, 4096),
)
LARGER = question_words("llama-3.1-405b", "16x8xH100-80GB", 512, 8192)
LOADED = (
    "import contextlib, io, json, sys\n"
    "from shardwright.api.cli.main import run\n"
    "with contextlib.redirect_stdout(io.StringIO()):\n"
    "    code = run({arguments!r})\n"
    "print(json.dumps([code, sorted(sys.modules)]))"
)


def run(work: Work) -> Evidence:
    """Time whole processes, each on its own."""
    repeats = work.sized(REPEATS, 2)
    answers = []
    for question in QUESTIONS:
        with tempfile.TemporaryDirectory() as folder:
            answers.append(_question(question, repeats, Path(folder)))
    return Evidence(
        rows=[
            *(row for rows, _ in answers for row in rows),
            _timed("plan --help", [*plan_command(), "--help"], HELP_LIMIT_S, repeats),
            _timed(
                "import shardwright",
                [sys.executable, "-c", "import shardwright"],
                IMPORT_LIMIT_S,
                repeats,
            ),
            _loaded("--help"),
            _loaded(*QUESTIONS[0]),
            _larger(),
            *(_tried(question, work.sized(PAIRS, 1)) for question in TRIED_ON),
        ],
        tables=[table for _, table in answers],
    )


def _question(question: Sequence[str], repeats: int, folder: Path) -> tuple[list[Row], Table]:
    """Seconds, memory, and bytes under several hash seeds of a plan."""
    name = f"plan of {question[1]} on {question[3]}"
    runs, plans, documents = [], [], []
    for seed in range(repeats):
        out = folder / f"{seed}.json"
        command = [*plan_command(), *question, "--out", str(out)]
        runs.append(succeeded(command, {"PYTHONHASHSEED": str(seed)}))
        plans.append(out.read_bytes())
        documents.append(json.loads(runs[-1].out)["plan"])
    wall_s = statistics.median(r.wall_s for r in runs)
    user_s = statistics.median(r.user_s for r in runs)
    same = len(set(plans)) == 1 and all(d == documents[0] for d in documents)
    rows = [
        judged(
            f"{name}, whole process",
            f"{wall_s:.2f} s, {user_s:.2f} s user, median of {repeats}",
            f"at most {PLAN_LIMIT_S:g} s",
            wall_s <= PLAN_LIMIT_S,
            wall_s=wall_s,
            user_s=user_s,
        ),
        judged(
            f"bytes of the {name} in {repeats} processes with different PYTHONHASHSEED",
            f"equal, {len(plans[0])} bytes" if same else f"{len(set(plans))} different files",
            "equal",
            same,
            plan_bytes=len(plans[0]),
        ),
        _memory(name, question),
        _search_row(f"search of the {name}", json.loads(runs[-1].out)),
    ]
    return rows, _repeats(name, runs)


def _repeats(name: str, runs: Sequence[Ran]) -> Table:
    return Table(
        title=f"Every repeat of the {name}",
        columns=("PYTHONHASHSEED", "wall s", "user s"),
        rows=[(str(n), f"{r.wall_s:.3f}", f"{r.user_s:.3f}") for n, r in enumerate(runs)],
    )


def _memory(name: str, question: Sequence[str]) -> Row:
    done = succeeded([*plan_command(), *question], follow=True)
    return judged(
        f"memory of the {name}, summed over the process tree",
        f"{done.peak_bytes / MIB:.0f} MiB at most",
        f"at most {TREE_LIMIT_BYTES / MIB:.0f} MiB",
        done.peak_bytes <= TREE_LIMIT_BYTES,
        peak_bytes=done.peak_bytes,
    )


def _timed(name: str, command: Sequence[str], limit_s: float, repeats: int) -> Row:
    """Median of whole processes; one more before them fills the file cache."""
    succeeded(command)
    runs = [succeeded(command) for _ in range(repeats)]
    bare = [succeeded([sys.executable, "-c", "pass"]) for _ in range(repeats)]
    wall_s = statistics.median(r.wall_s for r in runs)
    bare_s = statistics.median(r.wall_s for r in bare)
    return judged(
        f"{name}, whole process",
        f"{wall_s:.3f} s, median of {repeats} (an empty interpreter: {bare_s:.3f} s)",
        f"at most {limit_s:g} s",
        wall_s <= limit_s,
        wall_s=wall_s,
        interpreter_s=bare_s,
    )


def _loaded(*arguments: str) -> Row:
    """Heavy modules in a fresh interpreter after a command."""
    code = LOADED.format(arguments=list(arguments))
    done = succeeded([sys.executable, "-c", code])
    status, modules = json.loads(done.out)
    heavy = [name for name in HEAVY if name in modules]
    return judged(
        f"heavy modules after `plan {' '.join(arguments[:4])}`",
        f"{', '.join(heavy) or 'none'} among {len(modules)}",
        f"none of {', '.join(HEAVY)}",
        not heavy and status == 0,
        modules=len(modules),
    )


def _larger() -> Row:
    done = succeeded([*plan_command(), *LARGER], follow=True)
    document = json.loads(done.out)
    return _search_row(
        f"plan of llama-3.1-405b on 16x8xH100-80GB: {done.wall_s:.2f} s, {done.user_s:.2f} s "
        f"user, {done.peak_bytes / MIB:.0f} MiB",
        document,
        wall_s=done.wall_s,
        user_s=done.user_s,
        peak_bytes=done.peak_bytes,
    )


def _tried(question: str, repeats: int) -> Row:
    """Time of searches with products' chunks tried, over that of those without, in turn."""
    plain, tried = [], []
    for _ in range(repeats):
        plain.append(searched("shipped", question))
        tried.append(searched("chunks", question))
    plain_s, tried_s = (statistics.median(one["seconds"] for one in s) for s in (plain, tried))
    ratio, step_s = tried_s / plain_s, (plain[-1]["step_time_s"], tried[-1]["step_time_s"])
    return judged(
        f"search of the plan of {question} with tp_overlap tried, over it untried",
        f"{ratio:.2f}×: {tried_s:.2f} over {plain_s:.2f} s of the processor, medians of {repeats}; "
        f"steps {step_s[1]:.3f} and {step_s[0]:.3f} s",
        f"at most {LONGEST_TRIED:g}×",
        ratio <= LONGEST_TRIED,
        ratio=ratio,
        tried_s=tried_s,
        plain_s=plain_s,
    )


def _search_row(name: str, document: dict[str, Any], **values: Any) -> Row:
    search, prediction = document["search"], document["prediction"]
    return reported(
        name,
        f"step {prediction['step_time_s']:.3f} s, bound {search['lower_bound_s']:.3f} s, gap "
        f"{search['gap']:.1%}, {search['candidates']} plans simulated, stopped by "
        f"{search['stopped_by']}",
        **values,
        step_time_s=prediction["step_time_s"],
        lower_bound_s=search["lower_bound_s"],
        gap=search["gap"],
        candidates=search["candidates"],
    )


ITEM = Item(
    name="planner_speed",
    shows="A plan, help and an import are quick and light, and a plan is the same bytes each time.",
    target="plan 5 s and 1 GiB, help 0.5 s, import 0.2 s; no training library loaded; equal bytes; "
    "1.2 times as long with tp_overlap tried.",
    run=run,
    reads=(
        *EVERYTHING,
        "benchmarks/harness/processes.py",
        "benchmarks/support/lever_search.py",
        "tests/support/toys/levers.py",
    ),
    timed=True,
)
