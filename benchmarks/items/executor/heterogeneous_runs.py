"""Plans on two device types, emulated on slowed cores, against predictions.

The fast devices are half as fast as a core, the slow ones a quarter (``support.slow_ranks``), so
that four ranks need no more than the two cores that were profiled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from typing import Any

from generators.heterogeneous_cases import FAST, SLOW, Held, MixedCase, ranks
from generators.plan_cases import Case, Sizes
from harness.paths import BENCHMARKS
from harness.shapes import EVERYTHING, Evidence, Item, Table, judged, reported
from harness.work import Work
from support.machine_drift import JOB_PACKAGE, drift, loop_seconds
from support.slow_ranks import EmulatedMachine

from shardwright.api.cli.profile import DEFAULT_BUDGET_S
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.executor.groups.rank_layout import plan_world_size
from shardwright.executor.launch.pool import PoolOptions, WorkerPool
from shardwright.profiler.sweep import QUICK_BUDGET_S, measure
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.parallel.batch_partition import group_samples
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy

LIMIT = 0.2
CORES = 2
SLOWDOWNS = {FAST: 2.0, SLOW: 4.0}
ROUNDS, STEPS = 4, 2
STEP_JOB = "support.slow_ranks:step_seconds"
MODEL = Sizes(blocks=10, hidden=192, heads=6, kv_heads=6, ffn=768, vocab=1024)
PIPELINE = Case(name="", sizes=MODEL, global_batch=24, micro_batch=6, seq_len=128)
LOOPED = replace(PIPELINE, kind="interleaved", chunks=2)
SHARED: Held = ((FAST, 1, 2 / 3), (SLOW, 1, 1 / 3))
EVEN: Held = ((FAST, 1, 0.5), (SLOW, 1, 0.5))
TWOS = 2
"""Pairs of plans in the short form, the compared ones."""
PLAIN, TP2 = LayerStrategy(), LayerStrategy(tp=2)

CASES = (
    MixedCase(
        name="two stages, eight layers and four",
        held=(ranks(1), ranks(1, SLOW)),
        base=replace(PIPELINE, boundaries=(8,)),
    ),
    MixedCase(name="two stages, six layers each", held=(ranks(1), ranks(1, SLOW)), base=PIPELINE),
    MixedCase(name="one stage, samples 4 to 2", held=(SHARED,), base=PIPELINE),
    MixedCase(name="one stage, samples 3 to 3", held=(EVEN,), base=PIPELINE),
    MixedCase(name="one fast rank, then two slow", held=(ranks(1), ranks(2, SLOW)), base=PIPELINE),
    MixedCase(
        name="two slow ranks with tp 2, then one fast",
        held=(ranks(2, SLOW), ranks(1)),
        strategies=(TP2, PLAIN),
        base=PIPELINE,
    ),
    MixedCase(
        name="one fast rank, then two slow, interleaved",
        held=(ranks(1), ranks(2, SLOW)),
        base=LOOPED,
    ),
    MixedCase(name="two stages that share 4 to 2", held=(SHARED, SHARED), base=PIPELINE),
)
PAIRS = (
    ("layers by speed", CASES[0].name, CASES[1].name),
    ("samples by speed", CASES[2].name, CASES[3].name),
)
"""Uneven plans, each with the even one on the same devices."""


def run(work: Work) -> Evidence:
    """Profile the cores anew for every two plans, predict and run them."""
    names = [case.name for case in CASES][: work.sized(2 * TWOS, 2, len(CASES))]
    twos = {names[first]: names[first : first + 2] for first in range(0, len(names), 2)}
    pieces = work.pieces(list(twos), lambda first: _measure(work, twos[first]))
    plans = {name: row for piece in pieces for name, row in piece["plans"].items()}
    drifted = max(drift(piece["drift_s"]) for piece in pieces)
    errors = {name: piece["predicted_s"] / piece["measured_s"] - 1 for name, piece in plans.items()}
    worst = max(errors, key=lambda name: abs(errors[name]))
    rows = [
        judged(
            "step time of two-type plans, worst error",
            f"{errors[worst]:+.1%} ({worst}) of {len(errors)} plans",
            f"at most {LIMIT:.0%} either way",
            abs(errors[worst]) <= LIMIT,
            largest=abs(errors[worst]),
            plans=len(errors),
        )
    ]
    what = "machine drift (a fixed loop, slowest over fastest while two plans are measured)"
    rows.append(reported(what, f"up to {drifted:.1%}", machine_drift=drifted))
    for what, uneven, even in PAIRS:
        if uneven in plans and even in plans:
            gains = [plans[even][key] / plans[uneven][key] for key in ("measured_s", "predicted_s")]
            figure = f"{gains[0]:.2f} times as fast as even, predicted {gains[1]:.2f}"
            rows.append(reported(what, figure, measured=gains[0], predicted=gains[1]))
    lines = [
        (
            name,
            piece["plan"],
            f"{piece['predicted_s'] * 1e3:.1f}",
            f"{piece['measured_s'] * 1e3:.1f}",
            f"{errors[name]:+.1%}",
        )
        for name, piece in plans.items()
    ]
    columns = ("plan", "what it does", "predicted ms", "measured ms", "error")
    title = (
        f"fast devices {SLOWDOWNS[FAST]:g} and slow ones {SLOWDOWNS[SLOW]:g} times a core's time"
    )
    return Evidence(rows=rows, tables=[Table(title=title, columns=columns, rows=lines)])


def _measure(work: Work, names: Sequence[str]) -> dict[str, Any]:
    """Profile now, since the machine drifts; then predict and run plans.

    What was measured of a plan is the least step time of all rounds.
    """
    with WorkerPool(CORES, options=_options()) as pool:
        loops = [loop_seconds(pool)]
    work.say("profiling")
    profile = measure(work.sized(DEFAULT_BUDGET_S, QUICK_BUDGET_S), CORES)
    plans = {case.name: case.plan() for case in CASES if case.name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as kept:
        counts = {CORES, *map(plan_world_size, plans.values())}
        pools = {n: kept.enter_context(WorkerPool(n, options=_options())) for n in sorted(counts)}
        loops.append(loop_seconds(pools[CORES]))
        for _, name in product(range(work.sized(ROUNDS, 1)), names):
            times[name] += step_times(pools[plan_world_size(plans[name])], plans[name])
            loops.append(loop_seconds(pools[CORES]))
    results = {}
    for name, plan in plans.items():
        predicted_s = predicted_step_s(plan, profile)
        work.say(f"{name}: {predicted_s / min(times[name]) - 1:+.1%}")
        results[name] = {
            "plan": in_words(plan),
            "plan_hash": plan.hash,
            "predicted_s": predicted_s,
            "measured_s": min(times[name]),
            "times_s": times[name],
        }
    return {"plans": results, "drift_s": loops}


def in_words(plan: Plan) -> str:
    """Devices and samples of each stage, and the schedule."""
    program = plan.program
    stages = [
        " + ".join(
            f"{part.count} {part.device_group}: {taken}"
            for part, taken in zip(
                stage.devices, group_samples(stage, program.micro_batch_samples), strict=True
            )
        )
        for stage in program.stages
    ]
    schedule = program.schedule
    return f"{' | '.join(stages)} samples, {schedule.kind}, {schedule.microbatches} micro-batches"


def _options() -> PoolOptions:
    paths = [str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    return PoolOptions(
        job_packages=("shardwright", JOB_PACKAGE),
        environment={"PYTHONPATH": os.pathsep.join(path for path in paths if path)},
    )


def step_times(pool: WorkerPool, plan: Plan) -> list[float]:
    """Seconds of some steps after warm-up, the slowest rank's."""
    payload = {"plan": plan.to_document(), "steps": STEPS, "slowdowns": list(slowdowns(plan))}
    times: list[float] = pool.run(STEP_JOB, payload)[0]
    return times


def slowdowns(plan: Plan) -> Iterator[float]:
    """Slowdown of each rank's device against a core."""
    for stage in plan.program.stages:
        for part in stage.devices:
            yield from [SLOWDOWNS[part.device_group]] * part.count


def predicted_step_s(plan: Plan, profile: MachineProfile) -> float:
    """The simulated step of a plan on the emulated devices."""
    machine = EmulatedMachine(plan.cluster, profile, slowdowns=tuple(SLOWDOWNS.items()))
    simulation = Simulator.for_plan(plan, machine, stack("shardwright", on_cores=True)).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation.step_time_s


ITEM = Item(
    name="heterogeneous_runs",
    shows="Plans on two kinds of device, run with emulated slow ranks, against their prediction.",
    target="the steps of four plans within 20 % of the simulated ones.",
    full_target="the steps of eight plans within 20 % of the simulated ones.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/slow_ranks.py", "benchmarks/support/machine_drift.py",
           "benchmarks/support/reference_loop.py",
           "tests/support/generators/heterogeneous_cases.py",
           "tests/support/generators/plan_cases.py"),
    timed=True,
)  # fmt: skip
