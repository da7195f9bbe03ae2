"""More memory, or more devices that may stay idle, never makes the best plan worse."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from harness.parts import Part, Parts
from harness.places import BENCHMARKS, ROOT, commit
from harness.shapes import PLANNING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from support.growing import STEPS, chain

PAIRS = 10_000
CHAINS_OF_PART = 64
PARTS = -(-PAIRS // (CHAINS_OF_PART * STEPS))
EQUAL = 1e-9
SORTS = ("small", "large", "mixed")


def run(work: Work) -> Evidence:
    """Plan for every question of the chains that are left, as long as there is time."""
    if work.quick:
        return _evidence([counted([_chain(str(n)) for n in (0, 1, 28, 29, 30, 31)])], [], [])
    work.spreads = True
    parts, keys = Parts(work.name, work.inputs), [str(number) for number in range(PARTS)]
    done = parts.of(keys)
    work.kept_s += sum(part.seconds for part in done.values())
    places = [BENCHMARKS / "items" / "monotone.py", *(ROOT / place for place in ITEM.reads)]
    for key in keys:
        if key in done or work.is_over:
            continue
        work.say(f"part {key} of {len(keys)}")
        first = int(key) * CHAINS_OF_PART
        numbers = [str(first + n) for n in range(CHAINS_OF_PART)]
        kept_s = work.kept_s
        pieces = work.pieces(numbers, _chain)
        work.kept_s = kept_s
        seconds = sum(piece["seconds"] for piece in pieces)
        parts.add(key, commit(places), seconds, counted(pieces))
    done = parts.of(keys)
    found = [dict(done[key].result) for key in keys if key in done]
    return _evidence(found, list(done.values()), parts.older)


def _chain(number: str) -> dict[str, Any]:
    start_s = time.monotonic()
    return {**chain(int(number)), "seconds": time.monotonic() - start_s}


def pairs_of(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pairs of a chain: every question with the next larger one."""
    for step, (less, more) in enumerate(pairwise(found["answers"])):
        yield {
            "name": f"chain {found['number']} step {step}",
            "what": found["what"],
            "sort": found["sort"],
            "less_s": less["step_s"],
            "more_s": more["step_s"],
            "proven": less["proven"] and more["proven"],
            "idle": more["used"] < more["devices"],
        }


def counted(chains: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of the chains of a part."""
    pairs = [pair for found in chains for pair in pairs_of(found)]
    both = [p for p in pairs if p["less_s"] is not None and p["more_s"] is not None]
    return {
        "memory": sum(p["what"] == "memory" for p in pairs),
        "devices": sum(p["what"] == "devices" for p in pairs),
        **{sort: sum(p["sort"] == sort for p in pairs) for sort in SORTS},
        "both": len(both),
        "better": sum(p["more_s"] < p["less_s"] * (1 - EQUAL) for p in both),
        "opened": sum(p["less_s"] is None and p["more_s"] is not None for p in pairs),
        "unproven": sum(not p["proven"] for p in both),
        "idle": sum(p["idle"] for p in both if p["what"] == "devices"),
        "worse": [p for p in pairs if is_worse(p)],
    }


def is_worse(p: dict[str, Any]) -> bool:
    """Whether a pair has a worse plan, or none any more, with more."""
    if p["less_s"] is None:
        return False
    return p["more_s"] is None or p["more_s"] > p["less_s"] * (1 + EQUAL)


def _evidence(
    found: Sequence[dict[str, Any]], parts: Sequence[Part], older: Sequence[Part]
) -> Evidence:
    total = {key: sum(part[key] for part in found) for key in (*SORTS, "memory", "devices",
             "both", "better", "opened", "unproven", "idle")}  # fmt: skip
    worse = [p for part in found for p in part["worse"]]
    pairs = total["memory"] + total["devices"]
    rows = [
        judged(
            "pairs that were planned for",
            f"{pairs:,}: {total['memory']:,} with more memory, {total['devices']:,} with more "
            f"devices; {len(parts)} of {PARTS} parts",
            f"at least {PAIRS:,}",
            pairs >= PAIRS,
            pairs=pairs,
            parts=len(parts),
        ),
        *(_verdict(worse, what, total[what]) for what in ("memory", "devices")),
        reported(
            "pairs where more is strictly faster",
            f"{total['better']:,} of {total['both']:,} where both have a plan; "
            f"{total['opened']:,} more have a plan only with more",
            better=total["better"],
            both=total["both"],
            opened=total["opened"],
        ),
        reported(
            "pairs of spaces too large to be proven in full",
            f"{total['large']:,}; not proven: {total['unproven']:,} of {total['both']:,}",
            large=total["large"],
            unproven=total["unproven"],
        ),
        reported("pairs over two device groups", f"{total['mixed']:,}", mixed=total["mixed"]),
        reported(
            "pairs with more devices whose best plan leaves some idle",
            f"{total['idle']:,}",
            idle=total["idle"],
        ),
    ]
    if older:
        bad = sum(len(part.result["worse"]) for part in older)
        rows.append(
            reported(
                "parts of other code, which do not count",
                f"{len(older)}, in which {bad} pairs are worse with more",
                parts=len(older),
                worse=bad,
            )
        )
    lines = [_line(part, counts) for part, counts in
             [*((p, "yes") for p in parts), *((p, "no") for p in older)]]  # fmt: skip
    table = Table(
        title="Every part",
        columns=("part", "counts", "commit", "date", "s", "pairs", "worse"),
        rows=lines,
    )
    return Evidence(rows=rows, tables=[table], complete=len(parts) == PARTS)


def _line(part: Part, counts: str) -> tuple[str, ...]:
    pairs = part.result["memory"] + part.result["devices"]
    worse = str(len(part.result["worse"]))
    return part.key, counts, part.commit, part.date, f"{part.seconds:.0f}", str(pairs), worse


def _verdict(worse: Sequence[dict[str, Any]], what: str, pairs: int) -> Row:
    own = [p for p in worse if p["what"] == what]
    names = "; ".join(
        f"{p['name']} ({p['sort']}): {p['less_s']:.6g} s, then "
        + ("no plan" if p["more_s"] is None else f"{p['more_s']:.6g} s")
        for p in own[:5]
    )
    return judged(
        f"pairs where more {what} is worse",
        f"{len(own)} of {pairs:,}" + (f" ({names})" if own else ""),
        "0",
        not own,
        worse=len(own),
        pairs=pairs,
        largest_loss=max((_loss(p) for p in own), default=0.0),
    )


def _loss(p: dict[str, Any]) -> float:
    """How much slower; a plan that is lost altogether counts as 1."""
    return 1.0 if p["more_s"] is None else float(p["more_s"] / p["less_s"] - 1)


ITEM = Item(
    name="monotone",
    shows="More memory or more devices never makes the best plan worse.",
    target="0 of 10,000 random pairs (half memory, half devices) is worse by more than 1e-9.",
    run=run,
    reads=(*PLANNING, "benchmarks/support/growing.py", "tests/support/oracles/brute_force.py",
           "tests/support/oracles/heterogeneous_oracle.py",
           "tests/support/generators/random_spaces.py",
           "tests/support/generators/random_plans.py",
           "tests/support/generators/random_heterogeneous_plans.py",
           "tests/support/oracles/heterogeneous_bounds.py", "tests/support/published/planning.py",
           "tests/support/generators/tower_cases.py", "tests/support/generators/samples.py"),
)  # fmt: skip
