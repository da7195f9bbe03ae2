"""The best plans of searches against plans that differ from them in a decision or two."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import fields
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from growing import need_bytes
from harness.shapes import PLANNING, Evidence, Item, Table, judged, reported
from harness.work import Work
from neighbour_checks import Neighbours, check_neighbours
from oracle import Space
from problems import space as real_space
from random_spaces import random_space

QUESTIONS = (
    ("gpt2", "1xA100-80GB", 64, 1024),
    ("gpt2-xl", "8xA100-80GB", 128, 1024),
    ("gpt2-xl", "2x8xV100-32GB", 128, 1024),
    ("t5-large", "8xA100-40GB", 64, 512),
    ("llama-2-7b", "8xH100-80GB", 128, 4096),
    ("llava-1.5-7b", "8xA100-80GB", 64, 2048),
    ("mistral-7b", "8xA100-40GB", 128, 4096),
    ("llama-3-8b", "2x8xH100-80GB", 256, 8192),
    ("qwen3-8b", "4x8xB200", 256, 8192),
    ("mixtral-8x7b", "2x8xH100-80GB", 128, 4096),
    ("qwen3-30b-a3b", "2x8xH100-80GB", 128, 4096),
    ("llama-2-13b", "4x8xA800-80GB", 256, 4096),
    ("llama-3-70b", "8x8xH100-80GB", 512, 8192),
)
OF_EACH = 400
SPACES, OF_SPACE, MOST_PLANS = 100, 60, 6000
LEAST = 10_000
COLUMNS = ("question", "stopped by", "gap", "best plans", "neighbours that fit", "too large",
           "faster than the answer", "by at most")  # fmt: skip


def run(work: Work) -> Evidence:
    """Search real questions and small random ones, then look around their best plans."""
    keys = [" ".join(map(str, q)) for q in QUESTIONS[: work.sized(len(QUESTIONS), 3)]]
    keys += [f"space {seed}" for seed in range(work.sized(SPACES, 4))]
    found = [_piece(p) for p in work.pieces(keys, lambda key: _check(key, work.quick))]
    fitting = sum(piece.fitting for piece in found)
    proven = [piece for piece in found if piece.stopped_by == "proof"]
    faults = [f"{key}: {f}" for key, p in zip(keys, found, strict=True) for f in p.faults]
    others = [f"{key}: {f}" for key, p in zip(keys, found, strict=True) for f in p.other_order]
    faster = [each for piece in found for each in piece.faster]
    moves: Counter[str] = Counter()
    for piece in found:
        moves.update(piece.moves)
    rows = [
        judged(
            "neighbours that fit, one and two moves from the 20 best plans",
            f"{fitting:,} of {len(found)} questions, {sum(p.fitting for p in proven):,} of "
            f"{len(proven)} that are proven",
            f"at least {LEAST:,}",
            fitting >= work.sized(LEAST, 1),
            neighbours=fitting,
        ),
        judged(
            "below `lower_bound_s`, or faster than a proven answer",
            f"{len(faults)}" + (f" ({faults[0]})" if faults else ""),
            "0",
            not faults,
            faults=len(faults),
        ),
        judged(
            "the same of large models whose virtual stages are as even in another order",
            f"{len(others)}" + (f" ({others[0]})" if others else ""),
            "0",
            not others,
            faults=len(others),
        ),
        reported(
            "faster than an answer that is not proven",
            f"{len(faster)}, by at most {max((by for by, _ in faster), default=0.0):.2%}",
            faster=len(faster),
            most=max((by for by, _ in faster), default=0.0),
        ),
    ]
    lines = [_line(key, p) for key, p in zip(keys, found, strict=True)][: len(QUESTIONS)]
    counts = [(name, f"{count:,}") for name, count in moves.most_common()]
    return Evidence(
        rows=rows,
        tables=[
            Table(title="Real questions", columns=COLUMNS, rows=lines),
            Table(title="Moves", columns=("moves", "neighbours that fit"), rows=counts),
        ],
    )


def _check(key: str, quick: bool) -> dict[str, Any]:
    name, _, rest = key.partition(" ")
    if name == "space":
        found = check_neighbours(capped_space(int(rest)), 10 if quick else OF_SPACE, int(rest))
    else:
        cluster, batch, seq_len = rest.split(" ")
        space = real_space(name, cluster, int(batch), int(seq_len))
        found = check_neighbours(space, 20 if quick else OF_EACH, 0)
    return {each.name: getattr(found, each.name) for each in fields(found)}


def capped_space(seed: int) -> Space:
    """A small space on devices that hold about what one of its plans needs."""
    source = random.Random(f"neighbours of space {seed}")
    space = random_space(seed, MOST_PLANS)
    return space.with_memory(int(need_bytes(space, source) * source.uniform(0.9, 1.2)))


def _piece(found: dict[str, Any]) -> Neighbours:
    faster = [(by, what) for by, what in found["faster"]]
    return Neighbours(**{**found, "faster": faster, "moves": Counter(found["moves"])})


def _line(key: str, p: Neighbours) -> tuple[str, ...]:
    most = max((by for by, _ in p.faster), default=0.0)
    return (key, p.stopped_by, f"{p.gap:.2%}", str(p.bases), str(p.fitting), str(p.too_large),
            str(len(p.faster)), f"{most:.2%}")  # fmt: skip


ITEM = Item(
    name="neighbours",
    shows="Nothing next to the best plans is below the bound, or faster than a proven answer.",
    target=(
        "none of 10,000 legal neighbours of the 20 best plans of each question, one or two "
        "decisions away."
    ),
    run=run,
    reads=(*PLANNING, "api", "benchmarks/growing.py", "tests/support/oracle.py",
           "tests/support/random_spaces.py", "tests/support/random_plans.py",
           "tests/support/tower_cases.py", "tests/support/planning.py",
           "tests/support/samples.py", "tests/support/problems.py",
           "tests/support/bound_checks.py", "tests/support/neighbours.py",
           "tests/support/neighbour_checks.py"),
)  # fmt: skip
