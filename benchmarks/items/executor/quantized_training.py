"""A small GPT trained with fewer bits on the wire, beside plain runs of equal seeds.

Jia et al., NeurIPS 2024 (arXiv:2410.15526), table 1: of 4-bit weights, only differences keep the
loss. Four ranks as two nodes of two. ZeRO++ is trained beside them with one seed.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from checks.lowering_check import executor_stack
from checks.nested_runs import tiers
from generators.plan_cases import Case, Sizes
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from ranks.rank_pools import RankPool

from shardwright.costmodel.explain.level_bytes import level_bytes
from shardwright.costmodel.techniques import TECHNIQUES
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.quantized_communication import NAME, from_word

RANKS, STEPS, GLANCE, LAST = 4, 300, 20, 20
SEEDS = (0, 1, 2)
PLAIN, SDP4BIT, WEIGHTS = "none", "sdp4bit@2", "int4x2048/unchanged"
ZEROPP = "zero++@2"
SHARDS = {ZEROPP: "hpz:2"}
"""What a word's blocks are sharded by, where not as the others."""
WITHIN, TIMES, SHARE = 0.01, 5.0, 0.27
BETWEEN_NODES = "intra_rack"
BLOCKS = 2


def plan_of(word: str, blocks: int = BLOCKS) -> Plan:
    """The plan, its blocks sending as a word says."""
    plain = LayerStrategy(shard=Sharding.from_text(SHARDS.get(word, "zero1"), RANKS))
    block = plain if word == PLAIN else with_value(plain, NAME, from_word(word))
    case = Case(
        name=word,
        ranks=RANKS,
        sizes=Sizes(blocks=blocks, vocab=320, hidden=64, ffn=160),
        strategies=[plain, *[block] * blocks, plain],
        dtype="bf16",
        seq_len=32,
        global_batch=8,
        micro_batch=8,
    )
    return replace(case.plan(), cluster=tiers(RANKS))


def bytes_of_a_block(word: str) -> int:
    """Bytes that the lowering says a rank sends between nodes in a step for one block.

    Plain ones in bf16, gradients too.
    """
    least, more = (_sent(plan_of(word, blocks)) for blocks in (BLOCKS, BLOCKS + 1))
    return more - least


def _sent(plan: Plan) -> int:
    (name, workload), *_ = plan.workloads.items()
    dtype = replace(workload.dtype, gradient="bf16", communication="bf16")
    plan = replace(plan, workloads={name: replace(workload, dtype=dtype)})
    rows = level_bytes(plan, executor_stack(flash=True), TECHNIQUES)
    return next(row.sent_bytes for row in rows if row.level == BETWEEN_NODES)


def run(work: Work) -> Evidence:
    """Train each form with each seed."""
    steps = GLANCE if work.quick else STEPS
    keys = [(word, seed) for seed in SEEDS for word in (PLAIN, SDP4BIT, WEIGHTS)]
    keys.append((ZEROPP, SEEDS[0]))
    named = {f"{word}, seed {seed}": (word, seed) for word, seed in keys}
    with RankPool(RANKS) as pool:
        made = work.pieces([*named], lambda name: {"loss": _final(pool, *named[name], steps)})
    loss = {key: piece["loss"] for key, piece in zip(keys, made, strict=True)}
    apart = {
        (word, seed): abs(loss[word, seed] / loss[PLAIN, seed] - 1)
        for word in (SDP4BIT, WEIGHTS)
        for seed in SEEDS
    }
    share = bytes_of_a_block(SDP4BIT) / bytes_of_a_block(PLAIN)
    lines = [
        (str(seed), *(_text(loss.get((word, seed))) for word in (PLAIN, SDP4BIT, WEIGHTS, ZEROPP)))
        for seed in SEEDS
    ]
    table = Table(
        title=f"mean loss of the last {LAST} of {steps} steps",
        columns=("seed", "plain", "SDP4Bit", "4-bit weights", "ZeRO++"),
        rows=lines,
    )
    first = abs(loss[ZEROPP, SEEDS[0]] / loss[PLAIN, SEEDS[0]] - 1)
    zeropp = reported(f"final loss of {ZEROPP} against plain, 1 seed", f"{first:.2%} apart")
    return Evidence(rows=[*_rows(apart), zeropp, _bytes_row(share)], tables=[table])


def _text(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"


def _rows(apart: dict[tuple[str, int], float]) -> list[Row]:
    worst = max(apart[SDP4BIT, seed] for seed in SEEDS)
    ratio = statistics.fmean(apart[WEIGHTS, seed] for seed in SEEDS) / statistics.fmean(
        apart[SDP4BIT, seed] for seed in SEEDS
    )
    return [
        judged(
            f"final loss of {SDP4BIT} against plain, {len(SEEDS)} seeds",
            f"{worst:.2%} apart at most", f"within {WITHIN:.0%}", worst <= WITHIN, apart=worst,
        ),
        judged(
            "4-bit weights without differences: how much further apart", f"{ratio:.1f} x",
            f"at least {TIMES:.0f} x", ratio >= TIMES, ratio=ratio,
        ),
    ]  # fmt: skip


def _bytes_row(share: float) -> Row:
    return judged(
        f"bytes of a block between nodes by the lowering, {SDP4BIT} over bf16", f"{share:.3f}",
        f"at most {SHARE}", share <= SHARE, share=share,
    )  # fmt: skip


def _final(pool: RankPool, word: str, seed: int, steps: int) -> float:
    payload: dict[str, Any] = {
        "plan": plan_of(word).to_document(), "random_tokens": False, "seed": seed, "steps": steps,
        "follow_bytes": False,
    }  # fmt: skip
    losses = pool.run(TRAIN_JOB, payload)[0]["measured"]["losses"]
    return statistics.fmean(losses[-LAST:])


ITEM = Item(
    name="quantized_training",
    shows="A small GPT learns as well with 4-bit differences on the wire as with plain numbers.",
    target=(
        f"Final loss within {WITHIN:.0%}; 4-bit weights at least {TIMES:.0f} x further apart; "
        f"at most {SHARE} of bf16's bytes between nodes, as the lowering counts them "
        "(nested_degrees holds runs to it)."
    ),
    run=run,
    reads=(*EVERYTHING, "tests/support/checks/nested_runs.py"),
)
