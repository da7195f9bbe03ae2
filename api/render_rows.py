"""What the terminal and the notebook show of a report, as plain rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..costmodel.feasibility import MemoryRule
from ..spec.choices import RECOMPUTES
from ..spec.cluster import ClusterSpec
from ..spec.model import BlockLayer
from ..spec.plan import Plan, Stage
from ..spec.report import MemoryRow, Prediction, Report
from ..spec.strategy import LayerStrategy
from ..spec.units import GIB, format_bytes, format_count, format_seconds
from ..spec.workload import Workload

ROUNDING = 1e-9
"""Terms below this part of the step are left out."""
HEAD_ROWS, TAIL_ROWS = 16, 3
"""A table with more rows than these two and one shows its begin and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """Layers of one stage that are split alike; ``memory`` only on a stage's first row."""

    stage: str
    layers: str
    devices: str
    tp: str
    dp: str
    shard: str
    recompute: str
    memory: MemoryRow | None = None


@dataclass(slots=True)
class _Alike:
    """Layers of a stage with one split: their numbers and how their blocks recompute."""

    strategy: LayerStrategy
    numbers: list[int]
    recomputes: list[str]


def stage_rows(plan: Plan, prediction: Prediction) -> list[StageRow]:
    """One row for each way in which a stage splits some of its layers."""
    memory = {row.stage: row for row in prediction.memory if row.tier == "hbm"}
    found = []
    for number, stage in enumerate(plan.program.stages):
        ranks = stage.device_count
        for first, alike in zip(_first_only(), _alike(plan, stage), strict=False):
            dp = alike.strategy.data_parallel(ranks)
            found.append(
                StageRow(
                    stage=str(number) if first else "",
                    layers=ranges(alike.numbers),
                    devices=_devices(plan, stage) if first else "",
                    tp=_split_text(alike.strategy),
                    dp=str(dp),
                    shard=alike.strategy.shard.level_name(alike.strategy.state_ranks(ranks)),
                    recompute=_recompute(alike.recomputes),
                    memory=memory.get(number) if first else None,
                )
            )
    return found


def _split_text(strategy: LayerStrategy) -> str:
    """``4 + sp``, ``8 ulysses``, ``2 x cp 4``, ``1, ep 8``: how ranks split samples and experts."""
    split = " + sp" if strategy.megatron_sp else " ulysses" if strategy.ulysses else ""
    ring = f" x cp {strategy.cp}" if strategy.cp > 1 else ""
    experts = f", {expert_text(strategy)}" if (strategy.ep, strategy.etp) != (1, 1) else ""
    return f"{strategy.tp}{split}{ring}{experts}"


def expert_text(strategy: LayerStrategy) -> str:
    """``ep 8`` or ``ep 4 x etp 2``: how ranks split the experts of a layer."""
    return f"ep {strategy.ep}" + (f" x etp {strategy.etp}" if strategy.etp > 1 else "")


def _first_only() -> Iterator[bool]:
    yield True
    while True:
        yield False


def _alike(plan: Plan, stage: Stage) -> list[_Alike]:
    found: dict[tuple[object, ...], _Alike] = {}
    for parts in stage.virtual_stages:
        for number, layer, strategy in plan.chunk_layers(parts):
            key = (strategy.layout, strategy.ulysses, strategy.ep, strategy.etp, strategy.shard)
            entry = found.setdefault(key, _Alike(strategy, [], []))
            entry.numbers.append(number)
            if isinstance(layer, BlockLayer):
                entry.recomputes.append(strategy.recompute)
    return list(found.values())


def _recompute(recomputes: list[str]) -> str:
    """``none``, ``full``, or ``full 6 of 20`` where layers differ."""
    used = {kind: recomputes.count(kind) for kind in RECOMPUTES if kind in recomputes}
    if not used:
        return "-"
    if len(used) == 1:
        return next(iter(used))
    counts = [f"{kind} {n}" for kind, n in used.items() if kind != "none"]
    return " + ".join(counts) + f" of {len(recomputes)}"


def _devices(plan: Plan, stage: Stage) -> str:
    """``0-7``, or ``h100 0-7`` where the cluster has several device groups."""
    several = len(plan.cluster.groups) > 1
    return ", ".join(
        (f"{part.device_group} " if several else "")
        + span(part.first_rank, part.first_rank + part.count - 1)
        for part in stage.devices
    )


def span(first: int, last: int) -> str:
    """``0-7``, or ``3`` where first and last are the same."""
    return str(first) if first == last else f"{first}-{last}"


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as runs: ``0-3, 8-11``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(span(first, last) for first, last in runs)


def shortened(rows: list[StageRow]) -> tuple[list[StageRow], list[StageRow], int]:
    """The rows to show at the begin and at the end, and how many lie between."""
    if len(rows) <= HEAD_ROWS + TAIL_ROWS + 1:
        return rows, [], 0
    return rows[:HEAD_ROWS], rows[-TAIL_ROWS:], len(rows) - HEAD_ROWS - TAIL_ROWS


def shape_text(plan: Plan) -> str:
    """A plan in one line: ``tp 4, pp 4, dp 2, zero1, 1f1b, micro-batch 1 x 256``."""
    program = plan.program
    ranks = program.stages[0].device_count
    every = plan.layer_strategies()
    parts = [
        f"tp {_several(f'{s.tp} ulysses' if s.ulysses else s.tp for s in every)}",
        f"pp {len(program.stages)}",
        f"dp {_several(s.data_parallel(ranks) for s in every)}",
        _several(s.shard.level_name(s.state_ranks(ranks)) for s in every),
    ]
    if any(s.cp > 1 for s in every):
        parts.insert(2, f"cp {_several(s.cp for s in every)}")
    experts = [expert_text(s) for s in every if (s.ep, s.etp) != (1, 1)]
    if experts:
        parts.insert(len(parts) - 1, _several(experts))
    recomputes = {s.recompute for s in every} - {"none"}
    if recomputes:
        parts.append("recompute " + "/".join(sorted(recomputes)))
    if program.chunks_per_stage > 1:
        parts.insert(2, f"vpp {program.chunks_per_stage}")
    if len(program.stages) > 1:
        parts.append(program.schedule.kind)
    schedule = program.schedule
    return ", ".join([*parts, f"micro-batch {schedule.micro_batch} x {schedule.microbatches}"])


def _several(values: Iterable[object]) -> str:
    return "/".join(str(value) for value in dict.fromkeys(values))


def terms(prediction: Prediction) -> list[tuple[str, float, float]]:
    """Name, seconds and fraction of the step of every term that is not nil, largest first."""
    step_s = prediction.step_time_s
    found = [
        (name.replace("_", " "), seconds, seconds / step_s)
        for name, seconds in prediction.breakdown_s.items()
        if seconds > ROUNDING * step_s
    ]
    return sorted(found, key=lambda term: (-term[1], term[0]))


def memory_text(row: MemoryRow) -> str:
    """``76.6 of 79.2 GiB``, in MiB where the device has less than one GiB."""
    unit, name = (GIB, "GiB") if row.capacity_bytes >= GIB else (2**20, "MiB")
    return f"{row.reserved_bytes / unit:.3g} of {row.capacity_bytes / unit:.3g} {name}"


def fullest(prediction: Prediction) -> MemoryRow:
    """The memory row with the largest part of its capacity in use; the first on a tie."""
    return max(prediction.memory, key=lambda row: row.reserved_bytes / row.capacity_bytes)


def _trained_text(workload: Workload) -> str:
    """What is trained, where that is not everything."""
    if workload.adapters is not None:
        return f", lora of rank {workload.adapters.rank}"
    return f", {', '.join(workload.frozen)} frozen" if workload.frozen else ""


def question_text(plan: Plan) -> str:
    """The model and the workload in one line."""
    workload, model = plan.workload, plan.model
    parameters = format_count(model.param_count(workload.seq_len))
    size = f"{workload.global_batch} x {workload.seq_len} tokens a step"
    how = f"{workload.dtype.shorthand}, {workload.optimizer}{_trained_text(workload)}"
    return f"{model.name} ({parameters} parameters), {size}, {how}"


def cluster_text(report: Report) -> str:
    """The machine in one line, and whether its fabric was assumed."""
    cluster = report.plan.cluster
    text = " + ".join(_group_text(cluster.alone(group.name)) for group in cluster.groups)
    if len(cluster.groups) > 1:
        text += f"; joined by {cluster.levels[-1].fabric}"
    assumed = any(note.path.endswith(".fabric") for note in report.assumptions)
    return text + (" (assumed: no fabric given)" if assumed else "")


def _group_text(cluster: ClusterSpec) -> str:
    """The nodes of a cluster of one group, and its links."""
    group = cluster.groups[0]
    nodes = (
        f"{group.nodes} nodes of {group.devices_per_node}"
        if group.nodes > 1
        else str(group.devices_per_node)
    )
    joined = ", ".join(dict.fromkeys(level.fabric for level in cluster.levels))
    return f"{nodes} {group.device}, {joined}"


def interval_text(prediction: Prediction) -> str:
    """The step time with the half width of its interval."""
    low, high = prediction.step_time_interval_s
    half = (high - low) / 2 / prediction.step_time_s
    return f"{format_seconds(prediction.step_time_s)} ± {half * 100:.0f} %"


def percent(fraction: float) -> str:
    """``51.3 %`` with one decimal, ``<0.1 %`` for what is almost nothing."""
    if 0 < fraction < 0.0005:
        return "<0.1 %"
    return f"{fraction * 100:.1f} %"


def sources_text(report: Report) -> str:
    """Where the prices come from: ``93 % measured, 7 % analytic``."""
    shares = [(share, name) for name, share in report.source_share.items() if share > 0]
    return ", ".join(f"{share * 100:.0f} % {name}" for share, name in sorted(shares, reverse=True))


def search_text(report: Report) -> str:
    """How far the search got, in one line; '' for a simulation."""
    found = report.search
    if found is None:
        return ""
    done = f"{found.candidates} plans simulated in {format_seconds(found.seconds)}"
    if found.gap == 0:
        return f"{done}; proven the fastest of its space"
    why = {
        "proof": "the proof is complete",
        "work": "stopped at its work limit",
        "deadline": "stopped early, by deadline or Ctrl-C",
    }[found.stopped_by]
    bound = format_seconds(found.lower_bound_s)
    return f"{done}; {why}: at most {percent(found.gap)} above the proven bound {bound}"


def excess_lines(memory: Sequence[MemoryRow], rule: MemoryRule) -> list[str]:
    """What does not fit, worst first: tier, stage, amounts; at most three lines."""
    over = [(rule.excess_bytes(row), row) for row in memory if rule.excess_bytes(row) > 0]
    over.sort(key=lambda pair: (-pair[0], pair[1].stage))
    lines = [
        f"{row.tier} of stage {row.stage} may need {format_bytes(row.capacity_bytes + excess)} of "
        f"{format_bytes(row.capacity_bytes)}: over by {format_bytes(excess)}"
        for excess, row in over[:3]
    ]
    if len(over) > 3:
        lines.append(f"{len(over) - 3} more stages are over by less")
    return lines
