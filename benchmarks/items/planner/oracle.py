"""The planner against an independent brute force, on random spaces."""

from __future__ import annotations

import os
import random
from dataclasses import asdict
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from generators.uneven_spaces import binding_cap, uneven_space
from harness.shapes import PLANNING, Evidence, Item, Row, judged, reported
from harness.work import Work
from oracles.brute_force import solve
from oracles.heterogeneous_comparison import compare_mixed_seed
from published.chunked_spaces import chunked_space
from published.nested_spaces import compare_nested
from published.overlapped_spaces import overlapped_space
from published.planning import EQUAL, RULE, Comparison, compare, compare_drawn, compare_seed
from published.skewed_spaces import skewed_space


class Sort(NamedTuple):
    """Spaces of one sort: counts, and bounds of their legal plans."""

    spaces: int
    full: int
    least: int
    most: int
    what: str


SORTS = {
    "any": Sort(90, 300, 500, 6000, "any cluster and axis"),
    "few": Sort(90, 300, 500, 1500, "the same, of fewer plans"),
    "uneven": Sort(70, 250, 500, 1500, "uneven blocks and heads over stages that memory binds"),
    "mixed": Sort(50, 200, 200, 1200, "two device groups, of any widths and shares"),
    "skewed": Sort(60, 200, 200, 1500, "models with experts, half under loads that are not even"),
    "nested": Sort(60, 200, 100, 2000, "states over link levels, nested, beside lossy words"),
    "chunked": Sort(60, 200, 200, 1500, "experts' chunks, found by the planner itself"),
    "overlapped": Sort(60, 200, 200, 1500, "chunks of tensor-parallel products, and pairs"),
}
DRAWN = {"skewed": skewed_space, "chunked": chunked_space, "overlapped": overlapped_space}
BLOCK = 1000
"""Seeds that a commit may draw."""


def run(work: Work) -> Evidence:
    """Solve every space by brute force and by the planner."""
    work.spreads = True
    first = work.first_seed(BLOCK)
    keys = [
        f"{name} {first + number}"
        for name, sort in SORTS.items()
        for number in range(work.sized(sort.spaces, 3, sort.full))
    ]
    pieces = work.pieces(keys, _compare)
    comparisons = {k: Comparison(**_finite(p)) for k, p in zip(keys, pieces, strict=True)}
    spaces, faulty = len(comparisons), {k: c.faults for k, c in comparisons.items() if c.faults}
    feasible = [c for c in comparisons.values() if c.feasible]
    worst = max((abs(c.planned_s / c.best_s - 1) for c in feasible), default=0.0)
    gap = max((c.planned_s / c.lower_bound_s - 1 for c in feasible), default=0.0)
    names = "; ".join(f"{key}: {faults[0]}" for key, faults in list(faulty.items())[:5])
    return Evidence(
        rows=[
            judged(
                "spaces where planner and oracle agree",
                f"{spaces - len(faulty):,} of {spaces:,}" + (f" ({names})" if faulty else ""),
                f"all {spaces:,}",
                not faulty,
                spaces=spaces,
                agreeing=spaces - len(faulty),
            ),
            judged(
                "largest difference of simulated time",
                f"{worst:.1e} relative",
                f"at most {EQUAL:g}",
                worst <= EQUAL,
                largest_relative_difference=worst,
            ),
            judged("largest gap", f"{gap:.1e}", f"0 (to {EQUAL:g})", gap <= EQUAL, largest_gap=gap),
            *(
                _sort(name, [c for k, c in comparisons.items() if k.split()[0] == name])
                for name in SORTS
            ),
            *_layers(list(comparisons.values())),
            reported(
                "plans that the planner simulated, of all that are legal",
                f"{sum(c.simulated for c in feasible) / sum(c.plans for c in feasible):.1%}",
            ),
        ]
    )


def _sort(name: str, comparisons: list[Comparison]) -> Row:
    """The spaces of one sort."""
    sort, sizes = SORTS[name], sorted(c.plans for c in comparisons)
    feasible = [c for c in comparisons if c.feasible]
    binds = sum(c.memory_binds for c in comparisons)
    loses = sum(c.uniform_loses for c in feasible)
    uneven, total = sum(c.uneven for c in feasible), sum(sizes)
    even = "plans of equal stages and shares lose" if name == "mixed" else "uniform plans lose"
    return judged(
        f"`{name}`: {sort.what}",
        f"{len(comparisons)} spaces of {sizes[0]:,} to {sizes[-1]:,} legal plans, median "
        f"{sizes[len(sizes) // 2]:,}, {total:,} in all; memory binds in {binds}, {even} in "
        f"{loses}, the best plan's stages are uneven in {uneven}",
        f"each at least {sort.least} legal plans",
        sizes[0] >= sort.least,
        spaces=len(comparisons),
        least=sizes[0],
        most=sizes[-1],
        total=total,
        memory_binds=binds,
        uniform_loses=loses,
        uneven=uneven,
    )


def _layers(comparisons: list[Comparison]) -> list[Row]:
    """Numbers of spaces with several classes of layers besides embedding and head."""
    counts = {
        "with experts": sum(c.experts for c in comparisons),
        "with blocks of several kinds": sum(c.block_kinds > 1 for c in comparisons),
        "with blocks of several kinds, some with experts": sum(
            c.block_kinds > 1 and c.experts for c in comparisons
        ),
        "with several towers": sum(c.towers for c in comparisons),
    }
    return [
        reported(f"spaces {what}", f"{count:,} of {len(comparisons):,}", spaces=count)
        for what, count in counts.items()
    ]


def _compare(key: str) -> dict[str, Any]:
    return {k: (str(v) if v == float("inf") else v) for k, v in asdict(compared(key)).items()}


def compared(key: str) -> Comparison:
    """Comparison of a key, made of a sort's name and a seed."""
    name, _, number = key.partition(" ")
    sort, seed = SORTS[name], int(number)
    if name == "mixed":
        return compare_mixed_seed(seed, sort.least, sort.most)
    if name == "nested":
        return compare_nested(seed, sort.most)
    if name in DRAWN:
        return compare_drawn(seed, DRAWN[name](seed, sort.most))
    if name == "uneven":
        space = uneven_space(seed, sort.most)
        answer = solve(space)
        source = random.Random(f"uneven cap {seed}")
        return compare(seed, space, answer, binding_cap(source, answer, RULE))
    return compare_seed(seed + (10_000 if name == "few" else 0), sort.most)


def _finite(piece: dict[str, Any]) -> dict[str, Any]:
    return {k: (float("inf") if v == "inf" else v) for k, v in piece.items()}


ITEM = Item(
    name="oracle",
    shows="The planner finds what an independent brute force over all legal plans finds.",
    target=(
        "equal simulated time to 1e-9 and gap 0 on 540 random spaces: 250 of at least 500 legal "
        "plans, 50 over two device groups, 60 of experts, half skewed, 60 of experts' chunks and "
        "60 of overlapped products of at least 200, 60 of nested degrees of at least 100."
    ),
    full_target=(
        "equal simulated time to 1e-9 and gap 0 on 1,850 random spaces: 850 of at least 500 legal "
        "plans, 200 over two device groups, 200 of experts, half skewed, 200 of experts' chunks "
        "and 200 of overlapped products of at least 200, 200 of nested degrees of at least 100."
    ),
    run=run,
    reads=(*PLANNING, "tests/support/oracles/brute_force.py",
           "tests/support/generators/random_spaces.py", "tests/support/published/skewed_spaces.py",
           "tests/support/generators/uneven_spaces.py", "tests/support/generators/tower_cases.py",
           "tests/support/published/planning.py", "tests/support/oracles/heterogeneous_oracle.py",
           "tests/support/oracles/heterogeneous_comparison.py",
           "tests/support/oracles/heterogeneous_bounds.py",
           "tests/support/published/nested_spaces.py", "tests/support/published/chunked_spaces.py",
           "tests/support/published/overlapped_spaces.py"),
)  # fmt: skip
