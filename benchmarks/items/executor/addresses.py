"""Planned addresses: how near to live bytes, how they compare, and that runs replay them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from generators.plan_cases import Case, Sizes, sharded
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from items.executor.accuracy import Pools
from oracles.request_lists import GREEDY_FAILS, random_requests

from shardwright.api.execution.addresses import RECORD_JOB
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.executor.train.address_rehearsal import rehearse_addresses
from shardwright.planner.addresses.bi_level import bi_level
from shardwright.planner.addresses.caching_allocator import caching_allocator_bytes
from shardwright.planner.addresses.heuristics import best_fit, first_fit, greedy
from shardwright.planner.addresses.placement import overlapping_pair
from shardwright.planner.addresses.ranks import ALIGNMENT, planned_addresses
from shardwright.planner.addresses.solve import solve_addresses, solve_flat
from shardwright.spec.program_values import address_technique
from shardwright.spec.report.allocation_trace import AllocationTrace, most_live_bytes
from shardwright.spec.report.planned_addresses import keep_addresses
from shardwright.spec.strategy import LayerStrategy

MOST, BI_LEVEL_MOST, SECONDS, RESIDENT = 1.02, 1.05, 10.0, 0.01
STEPS, PROCESSES, SEQ_LEN, RANKS = 10, 3, 2048, 8
MODELS = {
    "GPT-2 small": Sizes(
        blocks=12, hidden=768, heads=12, kv_heads=12, ffn=3072, vocab=50257, gpt2=True, tied=True
    ),
    "Llama-2 7B, 8 blocks": Sizes(
        blocks=8, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000
    ),
    "Qwen3 1.7B, 8 blocks": Sizes(
        blocks=8, hidden=2048, heads=16, kv_heads=8, ffn=6144, vocab=151936, qk_norm=True
    ),
}
BATCHES = {"1 micro-batch": (1, 1), "2 micro-batches of 2": (2, 2)}
"""Micro-batches, and samples of each on a replica."""
ZERO1 = sharded("zero1", RANKS)
POLICIES = {
    "zero1": ZERO1,
    "zero1, selective": replace(ZERO1, recompute="selective"),
    "zero1, full": replace(ZERO1, recompute="full"),
    "zero3": sharded("zero3", RANKS),
}
SMALL = Sizes(blocks=4, hidden=128, heads=4, kv_heads=2, ffn=256, vocab=512)
REPLAYED = {
    "tp 2 + sp": Case(name="tp", strategies=LayerStrategy(tp=2, sequence_parallel="megatron")),
    "zero3": Case(name="zero3", strategies=sharded("zero3", 2)),
    "pp 2": Case(name="pp", stages=2, global_batch=16),
    "zero1, full": Case(name="full", strategies=replace(sharded("zero1", 2), recompute="full")),
}
IN_A_PROCESS = """
import hashlib, json, sys
from shardwright.planner.addresses.solve import solve_addresses
from shardwright.spec.report.allocation_trace import AllocationTrace
found = [solve_addresses(AllocationTrace.from_document(d)).offsets for d in json.load(sys.stdin)]
print(hashlib.sha256(json.dumps(found).encode()).hexdigest())
"""


def run(work: Work) -> Evidence:
    """Solve rehearsed and made traces; replay recorded ones."""
    names = [f"{m}; {b}; {p}" for m in MODELS for b in BATCHES for p in POLICIES]
    names = names[: work.sized(len(names), 2)]
    solved = work.pieces(names, lambda name: _solved(_rehearsed(name)))
    made = [_solved(AllocationTrace(requests=random_requests(seed))) for seed in GREEDY_FAILS]
    plans = list(REPLAYED)[: work.sized(len(REPLAYED), 1)]
    replayed = work.pieces([f"replay {name}" for name in plans], _replayed)
    hashes = _hashes([_rehearsed(names[0]), *_made_traces()])
    rows = [*_solved_rows(solved), *_made_rows(made), _processes_row(hashes)]
    rows += _replay_rows(dict(zip(plans, replayed, strict=True)))
    return Evidence(rows=rows, tables=[_table(names, solved)])


def _rehearsed(name: str) -> AllocationTrace:
    """The requests of a step, from a dry run of its first rank."""
    model, batch, policy = name.split("; ")
    micro_batches, samples = BATCHES[batch]
    case = Case(
        name=name,
        ranks=RANKS,
        sizes=MODELS[model],
        seq_len=SEQ_LEN,
        global_batch=micro_batches * samples * RANKS,
        micro_batch=samples * RANKS,
        strategies=POLICIES[policy],
    )
    (trace,) = rehearse_addresses(case.plan())
    return trace.placed(ALIGNMENT)


def _made_traces() -> list[AllocationTrace]:
    return [AllocationTrace(requests=random_requests(seed)) for seed in GREEDY_FAILS]


def _solved(trace: AllocationTrace) -> dict[str, Any]:
    """The arena of a step by several algorithms."""
    requests = trace.requests
    start_s = time.perf_counter()
    found = solve_addresses(trace)
    seconds = time.perf_counter() - start_s
    if overlapping_pair(requests, found.offsets) is not None:
        raise RuntimeError("live requests overlap")
    flat = solve_flat(requests).arena_bytes
    return {
        "requests": len(requests),
        "live_bytes": most_live_bytes(requests),
        "arena_bytes": found.arena_bytes,
        "by": found.by,
        "greedy_bytes": greedy(requests).arena_bytes,
        "first_fit_bytes": first_fit(requests).arena_bytes,
        "best_fit_bytes": best_fit(requests).arena_bytes,
        "caching_bytes": caching_allocator_bytes(requests),
        "flat_bytes": flat,
        "bi_level_bytes": bi_level(trace, solve_flat, solve_flat).arena_bytes
        if trace.sections
        else flat,
        "seconds": seconds,
    }


def _replayed(name: str) -> dict[str, Any]:
    """Ten steps with planned addresses and without."""
    technique = address_technique()
    if technique is None:
        raise RuntimeError("no technique plans addresses")
    case = REPLAYED[name.removeprefix("replay ")]
    case = replace(case, ranks=2, sizes=SMALL, seq_len=64)
    plan = replace(case, program=((technique.name, technique.value()),)).plan()
    payload = {"plan": plan.to_document(), "random_tokens": True}
    run_it = {"steps": STEPS, "follow_bytes": False}
    with Pools() as pools:
        pool = pools.of(2)
        documents = pool.run(RECORD_JOB, payload)
        traces = [AllocationTrace.from_document(document) for document in documents]
        kept = planned_addresses(plan.hash, traces)
        keep_addresses(kept)
        planned = pool.run(TRAIN_JOB, {**payload, **run_it})[0]
        plain = {**payload, **run_it, "plan": case.plan().to_document()}
        without = pool.run(TRAIN_JOB, plain)[0]
    reports = planned["techniques"][technique.name]
    return {
        "reports": reports,
        "requests": [(STEPS - 1) * len(kept.rank(n).sizes) for n in range(len(reports))],
        "same": planned["measured"]["losses"] == without["measured"]["losses"],
        "arena_over_live": max(d.arena_bytes / d.live_bytes for d in kept.different),
        "step_s": [planned["measured"]["step_time_s"], without["measured"]["step_time_s"]],
    }


def _hashes(traces: Sequence[AllocationTrace]) -> list[str]:
    """Hashes of the offsets of some traces, each solved in processes of their own."""
    text = json.dumps([trace.to_document() for trace in traces])
    found = []
    for number in range(PROCESSES):
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        command = [sys.executable, "-c", IN_A_PROCESS]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, env=environment
        )
        found.append(done.stdout.strip())
    return found


def _solved_rows(solved: Sequence[dict[str, Any]]) -> list[Row]:
    over = max(s["arena_bytes"] / s["live_bytes"] for s in solved)
    others = ("first_fit_bytes", "best_fit_bytes", "caching_bytes")
    above = sum(s["arena_bytes"] > min(s[other] for other in others) for s in solved)
    caching = max(s["caching_bytes"] / s["live_bytes"] for s in solved)
    bi_level_over = max(s["bi_level_bytes"] / s["flat_bytes"] for s in solved)
    slowest = max(s["seconds"] for s in solved)
    return [
        judged(
            "arena over most live bytes, worst step",
            f"{over:.4f} of {len(solved)} steps",
            f"at most {MOST}",
            over <= MOST,
            largest=over,
            steps=len(solved),
        ),
        judged(
            "steps above first fit, best fit or a caching allocator",
            f"{above} (a caching allocator: up to {caching:.2f} of live bytes)",
            "none",
            above == 0,
            above=above,
            largest_caching=caching,
        ),
        judged(
            "bi-level over flat, worst step",
            f"{bi_level_over:.4f}",
            f"at most {BI_LEVEL_MOST}",
            bi_level_over <= BI_LEVEL_MOST,
            largest=bi_level_over,
        ),
        judged(
            "solving, slowest step",
            f"{slowest:.1f} s",
            f"at most {SECONDS:.0f} s",
            slowest <= SECONDS,
            seconds=slowest,
        ),
    ]


def _made_rows(made: Sequence[dict[str, Any]]) -> list[Row]:
    greedily = min(s["greedy_bytes"] / s["live_bytes"] for s in made)
    over = max(s["arena_bytes"] / s["live_bytes"] for s in made)
    return [
        judged(
            "made requests that greedy placement fails",
            f"{over:.4f} of live bytes, greedy at least {greedily:.3f}, {len(made)} lists",
            f"at most {MOST} where greedy is above",
            over <= MOST < greedily,
            largest=over,
            least_greedy=greedily,
        )
    ]


def _processes_row(hashes: Sequence[str]) -> Row:
    return judged(
        "offsets in processes with other hash seeds",
        f"{len({*hashes})} different of {len(hashes)}",
        "the same",
        len({*hashes}) == 1,
    )


def _replay_rows(replayed: dict[str, dict[str, Any]]) -> list[Row]:
    rows = []
    for name, piece in replayed.items():
        reports = piece["reports"]
        served = sum(report["served"] for report in reports)
        asked = sum(piece["requests"])
        resident = max(abs(r["resident_bytes"] / r["arena_bytes"] - 1) for r in reports)
        met = served == asked and piece["same"] and resident <= RESIDENT
        rows.append(
            judged(
                f"replay of {STEPS} steps on 2 ranks: {name}",
                f"{served} of {asked} requests from the arena, losses "
                f"{'bit-identical' if piece['same'] else 'differ'}, resident within "
                f"{resident:.2%} of the arena",
                f"all requests, the same losses, within {RESIDENT:.0%}",
                met,
                served=served,
                requests=asked,
                largest_resident_error=resident,
            )
        )
        planned_s, plain_s = piece["step_s"]
        rows.append(
            reported(
                f"step time with the arena over without: {name}",
                f"{planned_s / plain_s:.2f} (arena {piece['arena_over_live']:.4f} of live bytes)",
                ratio=planned_s / plain_s,
            )
        )
    return rows


def _table(names: Sequence[str], solved: Sequence[dict[str, Any]]) -> Table:
    def ratio(piece: dict[str, Any], key: str) -> str:
        return f"{piece[key] / piece['live_bytes']:.4f}"

    keys = ("arena_bytes", "bi_level_bytes", "greedy_bytes", "first_fit_bytes", "best_fit_bytes",
            "caching_bytes")  # fmt: skip
    rows = [
        (
            name,
            str(piece["requests"]),
            f"{piece['live_bytes'] / 2**30:.2f}",
            *(ratio(piece, key) for key in keys),
            piece["by"],
            f"{piece['seconds']:.1f}",
        )
        for name, piece in zip(names, solved, strict=True)
    ]
    columns = ("step", "requests", "live GiB", "arena", "bi-level", "greedy by size", "first fit",
               "best fit", "caching", "by", "s")  # fmt: skip
    title = f"Bytes over most live bytes, sequence {SEQ_LEN}, first of {RANKS} ranks"
    return Table(title=title, columns=columns, rows=rows)


ITEM = Item(
    name="addresses",
    shows="Planned addresses take hardly more than live bytes, and runs replay them unchanged.",
    target=(
        "24 steps of three models: arena at most 1.02 of live bytes, never above first fit, best "
        "fit or a caching allocator, bi-level at most 1.05 of flat, 10 s each; 4 plans on 2 ranks: "
        "all requests from the arena, the same losses, resident bytes as predicted to 1 %."
    ),
    run=run,
    reads=(
        *EVERYTHING,
        "benchmarks/items/executor/accuracy.py",
        "tests/support/oracles/request_lists.py",
        "tests/support/generators/plan_cases.py",
    ),
)
