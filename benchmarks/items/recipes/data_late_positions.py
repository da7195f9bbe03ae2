"""A small language model on windows by likeness and on random ones: losses at late positions."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, reported
from harness.work import Work
from support.recipes.corpus import corpus
from support.recipes.late_positions import ORDERS, SEEDS, STEPS, late_losses

FEW_STEPS = 20
CALLED = {"likeness": "windows by likeness", "random": "random windows"}


def run(work: Work) -> Evidence:
    """Losses of held-out windows by quarter of their positions, seed by seed."""
    work.spreads = True
    keys = [str(seed) for seed in SEEDS[: work.sized(len(SEEDS), 1)]]
    found = work.pieces(keys, partial(_losses_of, steps=work.sized(STEPS, FEW_STEPS)))
    rows = [_row(held, found) for held in ORDERS]
    cells = [
        [key, CALLED[order], CALLED[held], *(f"{each:.3f}" for each in piece[order][held])]
        for key, piece in zip(keys, found, strict=True)
        for order in ORDERS
        for held in ORDERS
    ]
    columns = ["seed", "trained on", "held out", *(f"quarter {n}" for n in range(1, 5))]
    table = Table(title="Mean loss by quarter of the positions", columns=columns, rows=cells)
    return Evidence(rows=rows, tables=[table])


def _row(held: str, found: list[dict[str, Any]]) -> Row:
    last = {order: [piece[order][held][-1] for piece in found] for order in ORDERS}
    alike, plain = last["likeness"], last["random"]
    change = sum(alike) / sum(plain) - 1
    pairs = ", ".join(f"{one:.3f} / {other:.3f}" for one, other in zip(alike, plain, strict=True))
    return reported(
        f"held-out {CALLED[held]}: loss of the last quarter of positions, trained on windows by "
        "likeness / on random ones",
        f"{pairs}: {change:+.2%}", change=change,
    )  # fmt: skip


def _losses_of(key: str, steps: int) -> dict[str, Any]:
    return late_losses(corpus(), int(key), steps)


ITEM = Item(
    name="data_late_positions",
    shows="Losses late in held-out windows, trained on windows by likeness and on random ones.",
    target="Reported for 3 seeds at equal tokens; nothing is asserted of so small a model.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes"),
)
