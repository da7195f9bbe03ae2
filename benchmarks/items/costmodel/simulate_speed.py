"""Time of one simulation, of a thousand what-ifs, and event by event."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from typing import Any

from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, reported
from harness.work import Work

import shardwright as sw
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.event_simulation import STREAMS, simulate_events
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.planner.solve.problem import Problem
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan

ONE_LIMIT_S, MANY_LIMIT_S, EVENTS_LIMIT_S = 0.020, 5.0, 2.0
EXACT = 1e-9
REPEATS, FEW = 51, 5
WHAT_IFS, CORES = 1000, 2
TABLES = "shardwright.costmodel.kernel_latency"

PLANS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gpt3-175b", "128x8xA100-80GB", {"global_batch": 1536, "seq_len": 2048, "tp": 8, "pp": 8,
     "vpp": 3, "sp": "megatron", "recompute": "selective"}),
    ("llama-3-70b", "8x8xH100-80GB", {"global_batch": 512, "seq_len": 8192, "tp": 8, "pp": 4,
     "sp": "megatron", "shard": "zero1"}),
    ("llama-3-70b", "8x8xH100-80GB", {"global_batch": 512, "seq_len": 8192, "shard": "zero3",
     "recompute": "full"}),
    ("mixtral-8x7b", "8x8xH100-80GB", {"global_batch": 512, "seq_len": 4096, "tp": 2, "pp": 4,
     "ep": 8, "sp": "megatron", "shard": "zero1"}),
    ("deepseek-v3", "64x8xH100-80GB", {"global_batch": 4096, "seq_len": 4096, "ep": 64,
     "shard": "zero3", "recompute": "full"}),
)  # fmt: skip
DEEP = {"layers": 128, "hidden": 12288, "heads": 96, "vocab": 51200}
DEEP_FLAGS = {"tp": 8, "pp": 64, "sp": "megatron"}
DEEP_BATCHES, QUICK_BATCHES = 512, 64


def run(work: Work) -> Evidence:
    """Each question on its own, one after another."""
    rows = [_one(*case, work.sized(REPEATS, 3)) for case in PLANS]
    rows += _what_ifs(work.sized(WHAT_IFS, 50))
    rows += _events(work.sized(DEEP_BATCHES, QUICK_BATCHES), work.sized(FEW, 1))
    return Evidence(rows=rows)


def forget() -> None:
    """Empty caches of nouns, lowering and pricing, not of the catalogue."""
    for name, module in list(sys.modules.items()):
        if name.startswith(TABLES):
            continue
        if name.startswith(("shardwright.spec", "shardwright.costmodel", "shardwright.api")):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def median_s(
    function: Callable[[], object], repeats: int, before: Callable[[], None] = lambda: None
) -> float:
    """Median wall seconds of a call, ``before`` not counted."""
    times = []
    for _ in range(repeats):
        before()
        start_s = time.perf_counter()
        function()
        times.append(time.perf_counter() - start_s)
    return statistics.median(times)


def planned(model: Any, cluster: str, flags: dict[str, Any], **asked: Any) -> tuple[Problem, Plan]:
    """The plan of simulate's flags, with the question that it answers."""
    workload = {name: flags[name] for name in ("global_batch", "seq_len") if name in flags}
    problem = resolve(Inputs(model=model, cluster=cluster, **workload, **asked))
    strategy = {name: value for name, value in flags.items() if name not in workload}
    plan, _ = uniform_plan(problem, UniformStrategy(**strategy))
    return problem, plan


def _one(model: str, cluster: str, flags: dict[str, Any], repeats: int) -> Row:
    """A first simulation, a second with new objects, and the whole call."""
    problem, plan = planned(model, cluster, flags)

    def simulator() -> Simulator:
        return Simulator.for_plan(plan, Machine(plan.cluster, problem.measured), problem.stack)

    kept = simulator()

    def whole() -> object:
        return sw.simulate(model, cluster, **flags)

    cold_s = median_s(lambda: simulator().run(plan), repeats, forget)
    fresh_s = median_s(lambda: simulator().run(plan), repeats)
    again_s = median_s(lambda: kept.run(plan), repeats)
    whole_cold_s, whole_s = median_s(whole, repeats, forget), median_s(whole, repeats)
    layout = " ".join(f"{name} {value}" for name, value in flags.items())
    return judged(
        f"one simulation of {model} on {cluster} ({layout})",
        f"{cold_s * 1e3:.1f} ms with nothing lowered or priced before, {fresh_s * 1e3:.1f} ms with "
        f"layers known, {again_s * 1e3:.1f} ms with prices known; `sw.simulate` with its report "
        f"{whole_cold_s * 1e3:.1f} and {whole_s * 1e3:.1f} ms; medians of {repeats}",
        f"at most {ONE_LIMIT_S * 1e3:g} ms, the first and the whole call",
        max(cold_s, whole_cold_s) <= ONE_LIMIT_S,
        cold_s=cold_s,
        fresh_s=fresh_s,
        again_s=again_s,
        whole_cold_s=whole_cold_s,
        whole_s=whole_s,
    )


RATES = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0)
"""Bandwidths of the network, in parts of 50 GB/s a device."""


def layouts() -> Iterator[dict[str, Any]]:
    """Layouts and micro-batches of one model and cluster, some of them illegal."""
    for tp, pp, vpp, shard, recompute, micro_batch in product(
        (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 5), ("zero0", "zero1", "zero3"), ("none", "full"), (1, 2)
    ):
        sp = "megatron" if tp > 1 else "none"
        yield {"tp": tp, "pp": pp, "vpp": vpp, "shard": shard, "recompute": recompute,
               "micro_batch": micro_batch, "sp": sp}  # fmt: skip


QUESTION = Inputs(model="llama-3-70b", cluster="8x8xH100-80GB", global_batch=512, seq_len=8192)


def answered(chosen: list[dict[str, Any]]) -> list[float | None]:
    """Simulated seconds of each setting through ``sw.simulate``; None where it is refused."""
    problem = resolve(QUESTION)
    outer = problem.cluster.levels[-1]
    steps_s: list[float | None] = []
    for setting in chosen:
        flags = dict(setting)
        typed = replace(outer, bandwidth_bytes_per_s=50e9 * flags.pop("rate"), latency_s=5e-6)
        cluster = replace(problem.cluster, levels=(*problem.cluster.levels[:-1], typed))
        try:
            handle = sw.simulate(problem.model, cluster, global_batch=512, seq_len=8192, **flags)
            steps_s.append(handle.prediction.step_time_s)
        except InputError:
            steps_s.append(None)
    return steps_s


def _what_ifs(count: int) -> list[Row]:
    """Legal settings in one process and in two."""
    every = [{"rate": RATES[0], **layout} for layout in layouts()]
    buildable = [s for s, step_s in zip(every, answered(every), strict=True) if step_s is not None]
    legal = [{**setting, "rate": rate} for rate in RATES for setting in buildable]
    chosen = legal[:: max(1, len(legal) // count)][:count]
    forget()
    start_s, user_s = time.perf_counter(), time.process_time()
    alone = answered(chosen)
    alone_s, user_s = time.perf_counter() - start_s, time.process_time() - user_s
    forget()
    start_s = time.perf_counter()
    with ProcessPoolExecutor(CORES, mp_context=get_context("fork")) as pool:
        halves = list(pool.map(answered, [chosen[i::CORES] for i in range(CORES)]))
    both_s = time.perf_counter() - start_s
    same = all(halves[i] == alone[i::CORES] for i in range(CORES)) and None not in alone
    name = f"{len(chosen)} what-ifs of llama-3-70b on 8x8xH100-80GB, each a call of `sw.simulate`"
    about = f"{len(set(alone))} different step times"
    return [
        judged(
            f"{name}, in two processes",
            f"{both_s:.2f} s, {about}" + ("" if same else ", not the same as in one process"),
            f"at most {MANY_LIMIT_S:g} s on {CORES} cores",
            both_s <= MANY_LIMIT_S and same,
            seconds=both_s,
        ),
        reported(f"{name}, in one process", f"{alone_s:.2f} s, {user_s:.2f} s of them computing",
                 seconds=alone_s, user_s=user_s),
    ]  # fmt: skip


def _events(batches: int, repeats: int) -> list[Row]:
    """64 stages of 2 layers, by events and by passes."""
    flags = {**DEEP_FLAGS, "global_batch": batches, "seq_len": 2048}
    problem, plan = planned(DEEP, "64x8xH100-80GB", flags, overlap="none")

    def simulator() -> Simulator:
        return Simulator.for_plan(plan, Machine(plan.cluster), problem.stack)

    by_span, spans = simulate_events(simulator(), plan)
    by_pass = simulator().run(plan)
    if by_pass is None:
        raise RuntimeError("a simulation without a limit ends")
    seconds = median_s(lambda: simulate_events(simulator(), plan), repeats, forget)
    passes_s = median_s(lambda: simulator().run(plan), repeats, forget)
    apart = _apart(by_span, by_pass)
    of_stream = {name: int((spans.streams == n).sum()) for n, name in enumerate(STREAMS)}
    counts = ", ".join(f"{count} {name}" for name, count in of_stream.items() if count)
    layers = 2 * len(plan.program.stages) * 2 * batches
    name = f"64 stages x 2 layers x {batches} micro-batches"
    return [
        judged(
            f"{name}, event by event",
            f"{seconds:.2f} s for {spans.events} events: {len(spans.starts_s)} spans ({counts}), "
            f"{of_stream['collectives'] / layers:.1f} collectives a layer and direction; pass by "
            f"pass {passes_s:.3f} s; medians of {repeats}",
            f"at most {EVENTS_LIMIT_S:g} s",
            seconds <= EVENTS_LIMIT_S,
            seconds=seconds,
            passes_s=passes_s,
            events=spans.events,
            **{f"{name.replace(' ', '_')}_spans": count for name, count in of_stream.items()},
        ),
        judged(
            f"{name}, step time and ends of stages event by event against pass by pass",
            f"{apart:.1e} apart at most; spans of one stream overlap by {spans.overlap_s():.1e} s",
            f"{EXACT:g}",
            max(apart, spans.overlap_s() / by_pass.step_time_s) <= EXACT,
            apart=apart,
        ),
    ]


def _apart(one: Simulation, other: Simulation) -> float:
    pairs = [(one.step_time_s, other.step_time_s)]
    for a, b in zip(one.stages, other.stages, strict=True):
        pairs += [(a.end_s, b.end_s), *zip(a.starts_s, b.starts_s, strict=True)]
    return max(abs(a - b) for a, b in pairs) / other.step_time_s


ITEM = Item(
    name="simulate_speed",
    shows="A simulation, many in a row and one event by event are quick; events equal passes.",
    target="one 20 ms, 1,000 what-ifs 5 s on 2 cores, 64 x 2 x 512 by events 2 s and equal.",
    run=run,
    reads=EVERYTHING,
    timed=True,
)
