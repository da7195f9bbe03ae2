"""Nested degrees on eight ranks: gradients, losses, bytes of every link level, resumed runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from checks.nested_runs import COMBINATIONS, RANKS, Nested, faults, run_nested
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged
from harness.work import Work
from ranks.checkpoint_matrix import SAME_BOUND, apart, resumed, run_on, save
from ranks.rank_pools import RankPool

STEPS, LOSSY_STEPS = 10, 3
LOSSY = (("zero1", "sdp4bit@4"), ("zero2", "sdp4bit@4"), ("hpz:2", "zero++@4"), ("zero3", "int8@4"))
ROUTE = ("2/4/8", ("2/4/8", "4/8/8+hpz:2", "1/4/4", "zero3"))
"""A run that saves, and those that go on from there."""
QUICK = 3
RESUMED = "resumed"


def run(work: Work) -> Evidence:
    """Run every combination, each beside one process."""
    exact = {f"{text}": Nested(text) for text in COMBINATIONS}
    lossy = {f"{text} {word}": Nested(text, word) for text, word in LOSSY}
    names = [*exact, *lossy] if not work.quick else [*list(exact)[:QUICK], *list(lossy)[:1]]
    with RankPool(RANKS) as pool:
        made = work.pieces(
            [*names, RESUMED],
            lambda name: (
                _resumed(pool) if name == RESUMED else _ran(pool, {**exact, **lossy}[name])
            ),
        )
    pieces = dict(zip([*names, RESUMED], made, strict=True))
    rows = [
        _row(
            "combinations as one process, bytes as priced", [n for n in names if n in exact], pieces
        ),
        _row("lossy words, bytes as priced", [n for n in names if n in lossy], pieces),
        _row("resumed under another combination", [RESUMED], pieces),
    ]
    return Evidence(rows=rows, tables=[_table({n: pieces[n] for n in names})])


def _ran(pool: RankPool, nested: Nested) -> dict[str, Any]:
    try:
        found = run_nested(pool, nested, STEPS if nested.is_exact else LOSSY_STEPS)
    except Exception as error:
        return {"faults": [str(error)[:120]], "sent": {}, "gradient": None, "loss": None}
    verify = found["verify"] or {}
    return {
        "faults": faults(found),
        "sent": {level: sides["measured"][0] for level, sides in found["sent"].items()},
        "gradient": verify.get("max_rel_grad_diff"),
        "loss": verify.get("max_rel_loss_diff"),
    }


def _resumed(pool: RankPool) -> dict[str, Any]:
    run_ranks, (first, others) = run_on({RANKS: pool}), ROUTE
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        saved = save(run_ranks, Nested(first), Path(folder))
        for text in others:
            off = apart(resumed(run_ranks, Nested(text), saved), saved.losses)
            if not off <= SAME_BOUND:
                wrong.append(f"{text}: {off:.1e}")
    return {"faults": wrong}


def _row(what: str, names: list[str], pieces: dict[str, dict[str, Any]]) -> Row:
    bad = {name: pieces[name]["faults"] for name in names if pieces[name]["faults"]}
    good = len(names) - len(bad)
    said = "; ".join(f"{name}: {found[0]}" for name, found in list(bad.items())[:3])
    text = f"{good} of {len(names)}" + (f" ({said})" if said else "")
    return judged(what, text, f"all {len(names)}", not bad, runs=len(names), right=good)


def _table(pieces: dict[str, dict[str, Any]]) -> Table:
    levels = list(dict.fromkeys(level for piece in pieces.values() for level in piece["sent"]))
    rows = [
        (
            name,
            *(f"{piece['sent'].get(level, 0):,}" for level in levels),
            "" if piece["gradient"] is None else f"{piece['gradient']:.1e}",
            "" if piece["loss"] is None else f"{piece['loss']:.1e}",
        )
        for name, piece in pieces.items()
    ]
    heads = ("sharding", *(f"{level} bytes" for level in levels), "gradients", "losses")
    return Table(title="bytes that rank 0 sends a step, and differences", columns=heads, rows=rows)


ITEM = Item(
    name="nested_degrees",
    shows="Every nested combination of 1, 2, 4 and 8 on ranks as 2 nodes x 2 x 2; bytes a level.",
    target="24 runs equal one process, bytes of every level exact, lossy ones too; resumed runs.",
    run=run,
    reads=(*EVERYTHING, "tests/support"),
)
