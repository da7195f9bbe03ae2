"""Time and memory of ``plan`` from 8 to 100,000 devices, whole processes."""

from __future__ import annotations

import json
import statistics
from typing import Any, NamedTuple

from harness.processes import Ran, plan_command, question_words, ran
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from support.log_plot import Point, log_plot


class Question(NamedTuple):
    """A model on a cluster; ``limit_s`` where the time is judged."""

    model: str
    cluster: str
    devices: int
    batch: int
    seq_len: int
    limit_s: float | None = None

    @property
    def key(self) -> str:
        """Name in the results."""
        return f"{self.model} on {self.cluster}, {self.batch} x {self.seq_len}"


NODES = (1, 8, 64, 512, 2048, 12_500)
"""Of eight devices each."""
QUESTIONS = (
    *(
        Question("llama-3.1-405b", f"{n}x8xH100-80GB", 8 * n, max(64, n), 8192,
                 10.0 if n == 2048 else None)
        for n in NODES
    ),
    *(
        Question("deepseek-v3", f"{n}x8xB200", 8 * n, min(100_000, max(64, 16 * n)), 4096,
                 10.0 if n == 512 else None)
        for n in NODES
    ),
    *(Question("llama-3-8b", f"{n}x8xH100-80GB", 8 * n, max(64, 8 * n), 8192) for n in NODES[:4]),
    Question("kimi-k2", "25000x4xGB200", 100_000, 100_000, 4096, 30.0),
)  # fmt: skip
REPEATS = 3
MOST_DEVICES = 16_384
"""Of the questions of the short form whose time is not judged."""
MOST_GAP, MOST_BYTES, MIB = 0.02, 2**30, 2**20
NOTHING_FITS = 3
COLUMNS = ("model", "cluster", "devices", "batch", "sequence", "s", "user s", "peak MiB", "step s",
           "gap", "simulated", "stopped by")  # fmt: skip


def run(work: Work) -> Evidence:
    """Plan for every question, each as its own process."""
    questions = {q.key: q for q in QUESTIONS if _is_asked(q, work)}
    keys = list(questions)
    pieces = dict(
        zip(keys, work.pieces(keys, lambda key: _plan(questions[key], work.full)), strict=True)
    )
    rows = [
        row
        for key in keys
        if questions[key].limit_s
        for row in _judged(questions[key], pieces[key])
    ]
    most = max(keys, key=lambda key: pieces[key]["wall_s"])
    heaviest = max(piece["peak_bytes"] for piece in pieces.values())
    rows += [
        reported(
            "longest of all",
            f"{pieces[most]['wall_s']:.1f} s: {most}",
            wall_s=pieces[most]["wall_s"],
        ),
        judged(
            "memory of the largest process tree of all",
            f"{heaviest / MIB:.0f} MiB",
            f"at most {MOST_BYTES / MIB:.0f} MiB",
            heaviest <= MOST_BYTES,
            peak_bytes=heaviest,
        ),
    ]
    table = Table(
        title="Every plan",
        columns=COLUMNS,
        rows=[_line(questions[key], pieces[key]) for key in keys],
    )
    drawings = {"planner_scale": _drawing(questions, pieces)} if work.full else {}
    return Evidence(rows=rows, tables=[table], drawings=drawings)


def _is_asked(question: Question, work: Work) -> bool:
    if work.quick:
        return question.devices == 8
    return bool(work.full or question.limit_s or question.devices <= MOST_DEVICES)


def _plan(question: Question, full: bool) -> dict[str, Any]:
    """Seconds (the median, if judged) and memory of a plan.

    In the short form a time that is not judged is that of the run whose memory is followed.
    """
    size = question.batch, question.seq_len
    words = [*plan_command(), *question_words(question.model, question.cluster, *size)]
    followed = _ran(words, follow=True)
    repeats = REPEATS if question.limit_s else int(full)
    runs = [_ran(words) for _ in range(repeats)] or [followed]
    piece = {
        "wall_s": statistics.median(r.wall_s for r in runs),
        "user_s": statistics.median(r.user_s for r in runs),
        "peak_bytes": followed.peak_bytes,
        "fits": runs[0].code == 0,
    }
    if runs[0].code:
        return piece
    document = json.loads(runs[0].out)
    search = {k: document["search"][k] for k in ("gap", "candidates", "stopped_by")}
    return {**piece, **search, "step_time_s": document["prediction"]["step_time_s"]}


def _ran(words: list[str], follow: bool = False) -> Ran:
    done = ran(words, follow=follow)
    if done.code not in (0, NOTHING_FITS):
        raise RuntimeError(f"{' '.join(words)} exited with {done.code}: {done.err[-300:]}")
    return done


def _judged(question: Question, piece: dict[str, Any]) -> list[Row]:
    limit_s = question.limit_s or float("inf")
    gap = piece.get("gap", float("inf"))
    return [
        judged(
            f"plan of {question.key}, whole process",
            f"{piece['wall_s']:.2f} s, {piece['user_s']:.2f} s user, median of {REPEATS}",
            f"at most {limit_s:g} s",
            piece["fits"] and piece["wall_s"] <= limit_s,
            wall_s=piece["wall_s"],
            user_s=piece["user_s"],
        ),
        judged(
            f"gap of {question.key}",
            f"{gap:.2%}" if piece["fits"] else "nothing fits",
            f"at most {MOST_GAP:.0%}",
            gap <= MOST_GAP,
            **({"gap": gap} if piece["fits"] else {}),
        ),
    ]


def _line(q: Question, piece: dict[str, Any]) -> tuple[str, ...]:
    cells = (q.model, q.cluster, f"{q.devices:,}", str(q.batch), str(q.seq_len))
    spent = (f"{piece['wall_s']:.2f}", f"{piece['user_s']:.2f}", f"{piece['peak_bytes'] / MIB:.0f}")
    if not piece["fits"]:
        return (*cells, *spent, "nothing fits", "", "", "")
    return (*cells, *spent, f"{piece['step_time_s']:.4g}", f"{piece['gap']:.2%}",
            str(piece["candidates"]), piece["stopped_by"])  # fmt: skip


def _drawing(questions: dict[str, Question], pieces: dict[str, dict[str, Any]]) -> str:
    lines: dict[str, list[Point]] = {}
    for key, piece in pieces.items():
        point = Point(questions[key].devices, piece["wall_s"], piece["fits"])
        lines.setdefault(questions[key].model, []).append(point)
    return log_plot(
        "Seconds of plan, whole process, by devices of the cluster",
        ("devices", "seconds"),
        lines,
        sorted({questions[key].devices for key in pieces}),
    )


ITEM = Item(
    name="planner_scale",
    shows="A plan takes seconds and little memory from 8 to 100,000 devices.",
    target=(
        "10 s for llama-3.1-405b on 16,384 and deepseek-v3 on 4,096 devices, 30 s for kimi-k2 on "
        "100,000, each with a gap of at most 2 % and within 1 GiB; others to 16,384 devices."
    ),
    full_target=(
        "10 s for llama-3.1-405b on 16,384 and deepseek-v3 on 4,096 devices, 30 s for kimi-k2 on "
        "100,000, each with a gap of at most 2 % and within 1 GiB."
    ),
    run=run,
    reads=(*EVERYTHING, "benchmarks/harness/processes.py", "benchmarks/support/log_plot.py"),
    timed=True,
)
