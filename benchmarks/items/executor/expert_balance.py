"""Balance of experts while a language model of text trains: none, a loss, a bias without a loss.

Every variant counts its loads; the one without balance has a bias whose steps are below the
rounding of any score.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

from generators.plan_cases import Case
from harness.shapes import EVERYTHING, Evidence, Item, Table, judged, reported
from harness.work import Work
from ranks.expert_runs import ExpertSizes
from ranks.rank_pools import RankPool

from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.model.feed_forward import Balance, Moe

STEPS, LAST = 300, 50
SEEDS = (0, 1, 2)
COUNTED = 1e-30
NONE, AUXILIARY, BIAS = "no balance", "auxiliary loss", "bias"
VARIANTS = {
    NONE: Balance(bias_rate=COUNTED),
    AUXILIARY: Balance(aux_loss=0.01),
    BIAS: Balance(bias_rate=0.001),
}
MOE = Moe(experts=8, topk=2, ffn=64)
SIZES = ExpertSizes(blocks=2, hidden=64, ffn=128, vocab=257, moe=MOE)
CASE = Case(name="balance", sizes=SIZES, ranks=1, global_batch=8, micro_batch=8, seq_len=64)
LEARNING_RATE = 3e-3


def run(work: Work) -> Evidence:
    """Train each variant from each seed."""
    seeds = SEEDS[: work.sized(1, len(SEEDS), len(SEEDS))]
    names = [f"{variant}, seed {seed}" for seed in seeds for variant in VARIANTS]
    keys = dict(
        zip(names, [(variant, seed) for seed in seeds for variant in VARIANTS], strict=True)
    )
    with RankPool(1) as pool:
        made = work.pieces(names, lambda name: _trained(pool, *keys[name], work.quick))
    found = {keys[name]: piece for name, piece in zip(names, made, strict=True)}
    rows = []
    for variant in (AUXILIARY, BIAS):
        lower = [found[variant, s]["fullest"] < found[NONE, s]["fullest"] for s in seeds]
        text = ", ".join(
            f"{found[variant, s]['fullest']:.2f} of {found[NONE, s]['fullest']:.2f}" for s in seeds
        )
        target = f"lower than without, in all {len(seeds)}"
        rows.append(judged(f"fullest over mean, {variant}", text, target, all(lower)))
    losses = [fmean(found[variant, s]["loss"] for s in seeds) for variant in VARIANTS]
    text = ", ".join(f"{v}: {x:.3f}" for v, x in zip(VARIANTS, losses, strict=True))
    rows.append(reported("language loss of the last steps", text))
    return Evidence(rows=rows, tables=[_table(found)])


def _trained(pool: RankPool, variant: str, seed: int, quick: bool) -> dict[str, float]:
    moe = replace(MOE, balance=VARIANTS[variant])
    plan = replace(CASE, sizes=replace(SIZES, moe=moe)).plan()
    payload: dict[str, Any] = {
        "plan": plan.to_document(),
        "steps": 20 if quick else STEPS,
        "seed": seed,
        "follow_bytes": False,
        "adamw": {"learning_rate": {"peak": LEARNING_RATE}},
    }
    measured = pool.run(TRAIN_JOB, payload)[0]["measured"]
    return {
        "fullest": fmean(measured["balance"]["fullest_over_mean"][-LAST:]),
        "loss": fmean(measured["losses"][-LAST:]),
    }


def _table(found: dict[tuple[str, int], dict[str, float]]) -> Table:
    rows = [
        (variant, str(seed), f"{piece['fullest']:.3f}", f"{piece['loss']:.4f}")
        for (variant, seed), piece in found.items()
    ]
    columns = ("balance", "seed", "fullest over mean of the worst layer", "language loss")
    return Table(title=f"means of the last {LAST} of {STEPS} steps", columns=columns, rows=rows)


ITEM = Item(
    name="expert_balance",
    shows="A language model of 8 experts spreads its tokens more evenly with a balance.",
    target="Auxiliary loss and bias leave fullest over mean lower than no balance, in all seeds.",
    run=run,
    reads=(*EVERYTHING, "tests/support"),
)
