"""Plans over heterogeneous device groups against plans of equal stages."""

from __future__ import annotations

from typing import Any

from harness.shapes import PLANNING, Evidence, Item, Table, judged, reported
from harness.work import Work

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.heterogeneous.build import heterogeneous_search
from shardwright.planner.solve.engine import make_evaluator
from shardwright.planner.solve.garbage_collection import garbage_collection_paused
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InfeasibleError
from shardwright.spec.parallel.batch_partition import batch_share
from shardwright.spec.plan.plan import Plan

CASES = (
    ("gpt2-xl", "1x8xA100-80GB+1x8xH100-80GB", 128, 1024),
    ("gpt2-xl", "1x8xA100-40GB+1x4xH100-80GB", 96, 1024),
    ("gpt2-xl", "1x4xA100-80GB+1x8xH100-80GB+@8x100G-ETH", 64, 1024),
    ("llama-2-7b", "1x8xA100-80GB+1x8xH100-80GB", 64, 2048),
    ("llama-2-7b", "1x4xA100-40GB+1x4xA100-80GB+1x4xH100-80GB", 24, 2048),
    ("mistral-7b", "1x8xL40S+1x8xA100-80GB", 32, 2048),
    ("llama-3-8b", "1x8xA100-80GB+1x6xH100-80GB", 64, 4096),
    ("llama-3-8b", "2x8xA100-80GB+1x8xH100-80GB", 64, 2048),
    ("llama-2-13b", "1x8xA100-80GB+1x8xH200", 32, 2048),
    ("llama-2-70b", "2x8xA100-80GB+1x8xH100-80GB", 128, 4096),
)
LEAST_FASTER = 8
SAME = 1e-9
COLUMNS = (
    "model",
    "cluster",
    "batch",
    "sequence",
    "step s",
    "equal stages s",
    "fastest group s",
    "gain over equal",
    "gain over group",
    "gap",
    "devices and samples",
    "search s",
)


def run(work: Work) -> Evidence:
    """Search every case freely, with equal stages, and in single groups."""
    cases = {f"{m} on {c}, {b} x {s}": (m, c, b, s) for m, c, b, s in CASES}
    names = list(cases)[: work.sized(len(cases), 2)]
    pieces = work.pieces(names, lambda name: _search(*cases[name]))
    faster = [p for p in pieces if _less(p, "equal_s") and _less(p, "group_s")]
    slower = [n for n, p in zip(names, pieces, strict=True) if p["step_time_s"] > _rival_s(p)]
    gains = sorted(_rival_s(p) / p["step_time_s"] for p in pieces)
    rows = [
        judged(
            "faster than equal stages and than the fastest group alone",
            f"{len(faster)} of {len(pieces)}",
            f"at least {LEAST_FASTER} of {len(CASES)}",
            len(faster) >= min(LEAST_FASTER, len(pieces)),
            faster=len(faster),
            cases=len(pieces),
        ),
        judged(
            "slower than either",
            f"{len(slower)} of {len(pieces)}" + (f" ({'; '.join(slower)})" if slower else ""),
            "never",
            not slower,
            slower=len(slower),
        ),
        reported(
            "speed over the better of the two",
            f"median {gains[len(gains) // 2]:.3f}, {gains[0]:.3f} to {gains[-1]:.3f}",
            median=gains[len(gains) // 2],
            least=gains[0],
            most=gains[-1],
        ),
    ]
    lines = [(*map(str, cases[n]), *_cells(p)) for n, p in zip(names, pieces, strict=True)]
    return Evidence(rows=rows, tables=[Table(title="Every search", columns=COLUMNS, rows=lines)])


def _search(model: str, cluster: str, batch: int, seq_len: int) -> dict[str, Any]:
    problem = resolve(Inputs(model=model, cluster=cluster, global_batch=batch, seq_len=seq_len))
    solution = solve(problem)
    with garbage_collection_paused():
        equal = heterogeneous_search(make_evaluator(problem), uniform_only=True).run()
    equal_s = [o.step_time_s for o in equal.outcomes[:1]]
    if _is_equal(solution.plan):  # what the free search found is theirs too
        equal_s.append(solution.prediction.step_time_s)
    alone = [_alone_s(problem, group.name) for group in problem.cluster.groups]
    program = solution.plan.program
    stages = [
        "+".join(f"{p.count} {p.device_group}" + _share(p.batch_share) for p in stage.devices)
        for stage in program.stages
    ]
    return {
        "step_time_s": solution.prediction.step_time_s,
        "equal_s": min(equal_s, default=None),
        "group_s": min((s for s in alone if s is not None), default=None),
        "gap": solution.search.gap,
        "search_s": solution.search.seconds,
        "stages": " > ".join(stages),
        "schedule": f"{program.schedule.kind} x {program.schedule.microbatches}",
    }


def _is_equal(plan: Plan) -> bool:
    """True if all stages have one width, and all devices equal shares."""
    stages = plan.program.stages
    alike = len({stage.device_count for stage in stages}) == 1
    return alike and all(
        abs(batch_share(stage, part) - part.count / stage.device_count) < SAME
        for stage in stages
        for part in stage.devices
    )


def _share(share: float | None) -> str:
    return "" if share is None else f" ({share:.1%})"


def _alone_s(problem: Problem, group: str) -> float | None:
    """Best step time inside one group; None if nothing fits."""
    try:
        solution = solve(problem.on_cluster(problem.cluster.alone(group)))
    except InfeasibleError:
        return None
    return solution.prediction.step_time_s


def _rival_s(piece: dict[str, Any]) -> float:
    return min(piece[k] for k in ("equal_s", "group_s") if piece[k] is not None)


def _less(piece: dict[str, Any], rival: str) -> bool:
    return piece[rival] is None or piece["step_time_s"] < piece[rival]


def _cells(piece: dict[str, Any]) -> tuple[str, ...]:
    step_s = piece["step_time_s"]
    rivals = [piece[k] for k in ("equal_s", "group_s")]
    return (
        f"{step_s:.4g}",
        *("none fits" if s is None else f"{s:.4g}" for s in rivals),
        *("-" if s is None else f"{s / step_s - 1:+.1%}" for s in rivals),
        f"{piece['gap']:.1%}",
        f"{piece['stages']}, {piece['schedule']}",
        f"{piece['search_s']:.1f}",
    )


ITEM = Item(
    name="heterogeneous_clusters",
    shows="Uneven stages and shares beat equal stages and single groups on heterogeneous devices.",
    target=(
        "faster than the best equal-width equal-share plan on the same devices and than the "
        "fastest group alone in at least 8 of 10, never slower."
    ),
    run=run,
    reads=(*PLANNING, "api"),
    timed=True,
)
