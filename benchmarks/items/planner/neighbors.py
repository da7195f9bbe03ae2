"""Best plans against plans that differ in one or two decisions."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from generators.catalogue_problems import space as real_space
from generators.random_heterogeneous_plans import MixedDrawer
from generators.random_spaces import random_space
from harness.shapes import PLANNING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from items.planner.heterogeneous_clusters import CASES
from neighbors.neighbor_checks import Neighbors, check_mixed_neighbors, check_neighbors
from oracles.brute_force import Space, simulator_of
from oracles.heterogeneous_bounds import needs_of, random_mixed_problem
from oracles.heterogeneous_oracle import capped_space as capped_by_group
from support.growing import mixed_question, need_bytes

Found = dict[str, Neighbors]
"""Findings by question."""

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
OF_EACH = 450
REAL, CASES_DRAWN = 6, 4
"""Real questions of the short form, of one device group and of several."""
SPACES, FULL_SPACES, OF_SPACE, MOST_PLANS = 50, 100, 60, 6000
LEAST, FULL_LEAST = 4000, 10_000
BLOCK = 1000
"""Seeds that a commit may draw."""
OF_MIXED = 120
MIXED_SPACES, FULL_MIXED_SPACES, OF_MIXED_SPACE = 30, 60, 25
LEAST_MIXED, FULL_LEAST_MIXED = 800, 2000
COLUMNS = ("question", "stopped by", "gap", "best plans", "neighbors that fit", "too large",
           "faster than the answer", "by at most")  # fmt: skip
MIXED_COLUMNS = (*COLUMNS, "in no search", "of them faster", "by at most")
FASTER = ("faster", "unlisted_faster")
MIXED = "mixed "
"""Keys of questions over several device groups begin so."""


def run(work: Work) -> Evidence:
    """Search real and small random questions, then draw neighbors."""
    first = work.first_seed(BLOCK)
    real = [" ".join(map(str, q)) for q in work.sample(QUESTIONS, REAL, 3)]
    small = [f"space {first + n}" for n in range(work.sized(SPACES, 4, FULL_SPACES))]
    cases = [MIXED + " ".join(map(str, c)) for c in work.sample(CASES, CASES_DRAWN, 2)]
    spaces = work.sized(MIXED_SPACES, 4, FULL_MIXED_SPACES)
    groups = [f"{MIXED}space {first + n}" for n in range(spaces)]
    least = work.sized(LEAST, 1, FULL_LEAST)
    least_mixed = work.sized(LEAST_MIXED, 1, FULL_LEAST_MIXED)
    keys = [*real, *small, *cases, *groups]
    made = work.pieces(keys, lambda key: _check(key, work.quick))
    findings = dict(zip(keys, map(_piece, made), strict=True))
    one = {key: piece for key, piece in findings.items() if not key.startswith(MIXED)}
    mixed = {key: piece for key, piece in findings.items() if key.startswith(MIXED)}
    return Evidence(
        rows=[*_rows(one, least), *_mixed_rows(mixed, least_mixed)],
        tables=[
            Table(title="Real questions", columns=COLUMNS, rows=[_line(k, one[k]) for k in real]),
            _moves("Moves", one),
            Table(
                title="Questions over several device groups",
                columns=MIXED_COLUMNS,
                rows=[_mixed_line(key, mixed[key]) for key in cases],
            ),
            _moves("Moves over several device groups", mixed),
        ],
    )


def _rows(findings: Found, least: int) -> list[Row]:
    """Plans on one device group."""
    return [
        _drawn("neighbors that fit, one and two moves from the 20 best plans", findings, least),
        _none(
            "below `lower_bound_s`, or faster than a proven answer",
            [f"{key}: {fault}" for key, piece in findings.items() for fault in piece.faults],
        ),
        _none(
            "the same of large models whose virtual stages are as even in another order",
            [
                f"{key}: {fault}"
                for key, piece in findings.items()
                for fault in piece.unlisted_faults
            ],
        ),
        _faster(
            "faster than an answer that is not proven",
            [e for piece in findings.values() for e in (*piece.faster, *piece.unlisted_faster)],
        ),
    ]


def _mixed_rows(findings: Found, least: int) -> list[Row]:
    """Plans over several device groups.

    Small spaces are searched for those alone, so that one group may be faster than their answer.
    """
    what = "over several device groups"
    beside = sum(piece.unlisted for piece in findings.values())
    return [
        _drawn(f"neighbors that fit {what}", findings, least),
        _none(
            f"below `lower_bound_s` {what}, or faster than a proven answer",
            [f"{key}: {fault}" for key, piece in findings.items() for fault in piece.faults],
        ),
        _none(
            f"of the {beside:,} {what} that no search lists, below what devices do at best",
            [
                f"{key}: {fault}"
                for key, piece in findings.items()
                for fault in piece.unlisted_faults
            ],
        ),
        _faster(
            f"faster than an answer {what} that is not proven",
            [entry for piece in findings.values() for entry in piece.faster],
        ),
        _faster(
            f"faster than the best plan {what} that a search lists, and in none",
            [entry for piece in findings.values() for entry in piece.unlisted_faster],
        ),
    ]


def _drawn(name: str, findings: Found, least: int) -> Row:
    """Number of neighbors held against bounds and answers."""
    fitting = sum(piece.fitting for piece in findings.values())
    proven = [piece for piece in findings.values() if piece.stopped_by == "proof"]
    return judged(
        name,
        f"{fitting:,} of {len(findings)} questions, {sum(p.fitting for p in proven):,} of "
        f"{len(proven)} that are proven",
        f"at least {least:,}",
        fitting >= least,
        neighbors=fitting,
    )


def _none(name: str, faults: Sequence[str]) -> Row:
    figure = f"{len(faults)}" + (f" ({faults[0]})" if faults else "")
    return judged(name, figure, "0", not faults, faults=len(faults))


def _faster(name: str, faster: Sequence[tuple[float, str]]) -> Row:
    """Plans that beat an answer, which only a proven one rules out."""
    most = max((by for by, _ in faster), default=0.0)
    return reported(name, f"{len(faster)}, by at most {most:.2%}", faster=len(faster), most=most)


def _moves(title: str, findings: Found) -> Table:
    moves: Counter[str] = Counter()
    for piece in findings.values():
        moves.update(piece.moves)
    counts = [(name, f"{count:,}") for name, count in moves.most_common()]
    return Table(title=title, columns=("moves", "neighbors that fit"), rows=counts)


def _check(key: str, quick: bool) -> dict[str, Any]:
    if key.startswith(MIXED):
        neighbors = _checked_mixed(key.removeprefix(MIXED), quick)
    else:
        neighbors = _checked(key, quick)
    return {field.name: getattr(neighbors, field.name) for field in fields(neighbors)}


def _checked(key: str, quick: bool) -> Neighbors:
    name, _, rest = key.partition(" ")
    if name == "space":
        return check_neighbors(capped_space(int(rest)), 10 if quick else OF_SPACE, int(rest))
    cluster, batch, seq_len = rest.split(" ")
    space = real_space(name, cluster, int(batch), int(seq_len))
    return check_neighbors(space, 20 if quick else OF_EACH, 0)


def _checked_mixed(key: str, quick: bool) -> Neighbors:
    name, _, rest = key.partition(" ")
    if name == "space":
        wanted = 10 if quick else OF_MIXED_SPACE
        return check_mixed_neighbors(capped_mixed_space(int(rest)), wanted, int(rest))
    cluster, batch, seq_len = rest.split(" ")
    space = real_space(name, cluster, int(batch), int(seq_len))
    return check_mixed_neighbors(space, 20 if quick else OF_MIXED, 0, alone_first=True)


def capped_space(seed: int) -> Space:
    """A small space whose devices hold about one plan's need."""
    source = random.Random(f"neighbours of space {seed}")
    space = random_space(seed, MOST_PLANS)
    return space.with_memory(int(need_bytes(space, source) * source.uniform(0.9, 1.2)))


def capped_mixed_space(seed: int) -> Space:
    """A small space over two device groups with about one plan's need.

    Every other one is so small that its best plan is mostly proven.
    """
    source = random.Random(f"neighbours of mixed space {seed}")
    if seed % 2:
        space, plan = mixed_question(seed, source)
    else:
        space = random_mixed_problem(seed)
        plan = MixedDrawer(space, source).draft().plan(space)
    simulation = simulator_of(space).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    needs = needs_of(simulation)
    return capped_by_group(
        space, {name: int(need * source.uniform(0.9, 1.2)) for name, need in needs.items()}
    )


def _piece(fields_: dict[str, Any]) -> Neighbors:
    told = {name: [(by, what) for by, what in fields_[name]] for name in FASTER}
    return Neighbors(**{**fields_, **told, "moves": Counter(fields_["moves"])})


def _line(key: str, p: Neighbors) -> tuple[str, ...]:
    return (key, p.stopped_by, f"{p.gap:.2%}", str(p.bases), str(p.fitting), str(p.too_large),
            *_most(p.faster))  # fmt: skip


def _mixed_line(key: str, p: Neighbors) -> tuple[str, ...]:
    cells = _line(key.removeprefix(MIXED), p)
    return (*cells, str(p.unlisted), *_most(p.unlisted_faster))


def _most(faster: Sequence[tuple[float, str]]) -> tuple[str, str]:
    most = max((by for by, _ in faster), default=0.0)
    return str(len(faster)), f"{most:.2%}"


ITEM = Item(
    name="neighbors",
    shows="Nothing next to the best plans is below the bound, or faster than a proven answer.",
    target=(
        "none of 4,000 legal neighbors of the 20 best plans of each question, one or two "
        "decisions away, nor of 800 over several device groups."
    ),
    full_target=(
        "none of 10,000 legal neighbors of the 20 best plans of each question, one or two "
        "decisions away, nor of 2,000 over several device groups."
    ),
    run=run,
    reads=(*PLANNING, "api", "benchmarks/support/growing.py",
    "tests/support/oracles/brute_force.py",
           "tests/support/generators/random_spaces.py", "tests/support/generators/random_plans.py",
           "tests/support/generators/tower_cases.py", "tests/support/published/planning.py",
           "tests/support/generators/samples.py", "tests/support/generators/catalogue_problems.py",
           "tests/support/oracles/bound_checks.py", "tests/support/neighbors/plan_neighbors.py",
           "tests/support/neighbors/neighbor_checks.py", "tests/support/neighbors/plan_moves.py",
           "tests/support/oracles/heterogeneous_oracle.py",
           "tests/support/oracles/heterogeneous_bounds.py",
           "tests/support/neighbors/heterogeneous_moves.py",
           "tests/support/neighbors/heterogeneous_neighbors.py",
           "tests/support/generators/random_heterogeneous_plans.py",
           "benchmarks/items/planner/heterogeneous_clusters.py"),
)  # fmt: skip
