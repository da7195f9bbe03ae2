"""A plan from simulate's flags: one strategy everywhere, blocks split evenly in order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..costmodel.simulate import most_microbatches
from ..planner.shard_levels import with_degrees
from ..spec.cluster import ClusterSpec
from ..spec.errors import InputError, NotBuiltError, nearest_divisor, nearest_name
from ..spec.legality import layer_reason, schedule_reason, schedule_stack_reason, stack_reason
from ..spec.model import BlockLayer
from ..spec.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from ..spec.report import Assumption
from ..spec.schedule import EVERY_KIND, V_KINDS, ScheduleKind, chunk_position
from ..spec.strategy import LayerStrategy, Sharding
from .inputs import Problem
from .typed import check_types


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformStrategy:
    """Simulate's strategy flags; None where one was left out."""

    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None
    sp: str | None = None
    shard: str | None = None
    schedule: str | None = None
    micro_batch: int | None = None
    recompute: str | None = None


def uniform_plan(problem: Problem, flags: UniformStrategy) -> tuple[Plan, tuple[Assumption, ...]]:
    """The plan that the flags describe, and what was assumed where they were left out.

    Raises:
        InputError: a degree that does not divide, a product that misses the devices.
        NotBuiltError: a value that the contract names and this version does not serve.
    """
    check_types(flags)
    notes: list[Assumption] = []
    usual = {"vpp": 2 if flags.schedule in V_KINDS else 1}
    degrees = {
        name: _degree(name, getattr(flags, name), notes, usual.get(name, 1))
        for name in ("tp", "pp", "vpp", "cp", "ep", "etp")
    }
    for name in ("cp", "ep", "etp"):
        if degrees[name] != 1:
            raise NotBuiltError(f"--{name} {degrees[name]}", f"use --{name} 1")
    tp, pp, vpp = degrees["tp"], degrees["pp"], degrees["vpp"]
    dp = _data_parallel(problem, flags.dp, tp, pp, notes)
    strategy = _strategy(flags, problem.cluster, tp, dp, notes)
    micro_batch = _degree("micro-batch", flags.micro_batch, notes)
    given = flags.schedule if flags.schedule in EVERY_KIND else "1f1b"
    most = most_microbatches(pp, vpp, given)
    microbatches = _microbatches(problem, micro_batch, dp, most)
    kind = _schedule(flags.schedule, vpp, notes)
    plan = _build(problem, strategy, (pp, vpp, tp * dp), kind, (micro_batch, microbatches))
    return plan, tuple(notes)


def _left_out(name: str, value: object) -> Assumption:
    return Assumption(path=f"--{name}", value=value, why="not given")


def _degree(name: str, given: int | None, notes: list[Assumption], usual: int = 1) -> int:
    if given is None:
        notes.append(_left_out(name, usual))
        return usual
    if not 1 <= given <= 2**24:
        raise InputError(f"--{name}", given, "a positive whole number", 1)
    return given


def _word(
    name: str, given: str | None, default: str, known: tuple[str, ...], notes: list[Assumption]
) -> str:
    if given is None:
        notes.append(_left_out(name, default))
        return default
    if given not in known:
        raise InputError(f"--{name}", given, ", ".join(known), nearest_name(given, known))
    return given


def _data_parallel(
    problem: Problem, given: int | None, tp: int, pp: int, notes: list[Assumption]
) -> int:
    devices = problem.cluster.device_count
    if tp * pp > devices or devices % (tp * pp):
        raise InputError(
            "--tp x --pp",
            f"{tp} x {pp} = {tp * pp}",
            f"a product that divides the {devices} devices",
            nearest_divisor(min(tp * pp, devices), devices),
        )
    usual = devices // (tp * pp)
    if given is None:
        notes.append(_left_out("dp", usual))
        return usual
    if given != usual:
        allowed = f"{usual}, so that tp x pp x dp uses the {devices} devices"
        raise InputError("--dp", given, allowed, usual)
    return given


def _strategy(
    flags: UniformStrategy, cluster: ClusterSpec, tp: int, dp: int, notes: list[Assumption]
) -> LayerStrategy:
    if flags.sp == "ulysses":
        raise NotBuiltError("--sp ulysses", "use none or megatron")
    sp = _word("sp", flags.sp, "none", ("none", "megatron"), notes)
    if sp == "megatron" and tp == 1:
        notes.append(Assumption(path="--sp", value="none", why="tp 1 leaves nothing to split"))
    if flags.recompute is not None and flags.recompute.startswith("ops:"):
        raise NotBuiltError("--recompute ops:…", "use none, selective or full")
    known = ("none", "selective", "full")
    recompute = _word("recompute", flags.recompute, "none", known, notes)
    shard = flags.shard
    if shard is None:
        notes.append(_left_out("shard", "zero0"))
        shard = "zero0"
    if shard.startswith("hpz"):
        raise NotBuiltError("--shard hpz:…", "use zero0 to zero3 or hsdp:DEGREE")
    return LayerStrategy(
        tp=tp,
        sequence_parallel=sp if tp > 1 else "none",  # type: ignore[arg-type]
        shard=Sharding.from_text(with_degrees(shard, cluster, tp, dp), dp),
        recompute=recompute,  # type: ignore[arg-type]
    )


def _microbatches(problem: Problem, micro_batch: int, dp: int, most: int) -> int:
    batch, samples = problem.workload.global_batch, micro_batch * dp
    if batch % samples:
        near = max(1, batch // samples) * samples
        allowed = f"a multiple of micro-batch {micro_batch} x dp {dp} = {samples}"
        raise InputError("--global-batch", batch, allowed, near)
    if batch // samples > most:
        allowed = f"one that leaves at most {most} micro-batches, not {batch // samples}"
        raise InputError("--micro-batch", micro_batch, allowed, -(-batch // (dp * most)))
    return batch // samples


def _schedule(given: str | None, vpp: int, notes: list[Assumption]) -> ScheduleKind:
    usual = "interleaved" if vpp > 1 else "1f1b"
    return _word("schedule", given, usual, EVERY_KIND, notes)  # type: ignore[return-value]


def _build(
    problem: Problem,
    strategy: LayerStrategy,
    shape: tuple[int, int, int],
    kind: ScheduleKind,
    batch: tuple[int, int],
) -> Plan:
    pp, vpp, ranks = shape
    chunks = _even_chunks(problem, pp * vpp, strategy)
    if reason := schedule_reason(kind, pp, vpp, batch[1], len(problem.model.layers())):
        raise InputError("--schedule", kind, reason)
    if reason := schedule_stack_reason(kind, problem.stack):
        raise InputError("--schedule", kind, f"one that the stack can say ({reason})", "1f1b")
    group = problem.cluster.groups[0].name
    stages = tuple(
        Stage(
            devices=(StageDevices(device_group=group, first_rank=s * ranks, count=ranks),),
            virtual_stages=tuple(chunks[chunk_position(kind, s, v, pp)] for v in range(vpp)),
        )
        for s in range(pp)
    )
    plan = Plan(
        models={"main": problem.model},
        cluster=problem.cluster,
        workloads={"main": problem.workload},
        programs=(
            Program(
                stages=stages,
                schedule=Schedule(kind=kind, micro_batch=batch[0], microbatches=batch[1]),
            ),
        ),
    )
    _refuse(problem, strategy, ranks, plan)
    return plan


def _refuse(problem: Problem, strategy: LayerStrategy, ranks: int, plan: Plan) -> None:
    """Name the first rule that the plan breaks, as the flag that breaks it."""
    shard = strategy.shard.level_name(strategy.data_parallel(ranks))
    if reason := stack_reason(strategy, problem.stack):
        raise InputError("--shard", shard, f"zero0 or zero1 ({reason})", "zero1")
    samples = plan.program.micro_batch_samples
    if reason := _layers_reason(problem, strategy, ranks, samples):
        if reason.startswith("shard"):
            raise InputError("--shard", shard, f"a level or nested degrees ({reason})", "zero1")
        allowed = f"a degree that splits every layer ({reason})"
        raise InputError("--tp", strategy.tp, allowed, _nearest_tp(problem, strategy, ranks))
    if violations := plan.check():
        raise InputError(violations[0].path, violations[0].message, "a legal plan")


def _layers_reason(
    problem: Problem, strategy: LayerStrategy, ranks: int, samples: int
) -> str | None:
    """Why some layer kind may not run under the strategy; None if all may."""
    for layer in problem.model.kinds():
        own = strategy if isinstance(layer, BlockLayer) else replace(strategy, recompute="none")
        reason = layer_reason(layer, own, ranks, samples, problem.workload.seq_len)
        if reason:
            return reason
    return None


def _nearest_tp(problem: Problem, strategy: LayerStrategy, ranks: int) -> int:
    """The legal tensor-parallel degree closest to the one given; 1 always is one."""
    legal = [1]
    for tp in (d for d in range(2, ranks + 1) if ranks % d == 0):
        tried = replace(strategy, tp=tp, shard=Sharding())
        if _layers_reason(problem, tried, ranks, ranks) is None:
            legal.append(tp)
    return min(legal, key=lambda d: (abs(d - strategy.tp), d))


def _even_chunks(
    problem: Problem, chunks: int, strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    """Blocks in equal runs; the embedding joins the first chunk, the head the last."""
    blocks = problem.model.block_count
    if blocks % chunks:
        raise InputError(
            "--pp x --vpp",
            chunks,
            f"a product that divides the {blocks} blocks",
            nearest_divisor(min(chunks, blocks), blocks),
        )
    size = blocks // chunks
    tower = problem.model.towers[0].name
    ends = replace(strategy, recompute="none")
    found: list[tuple[LayerPlan, ...]] = []
    for number in range(chunks):
        first = 1 + number * size
        parts = [LayerPlan(layers=(tower, first, first + size - 1), strategy=strategy)]
        if number == 0:
            parts.insert(0, LayerPlan(layers=(tower, 0, 0), strategy=ends))
        if number == chunks - 1:
            parts.append(LayerPlan(layers=(tower, blocks + 1, blocks + 1), strategy=ends))
        found.append(tuple(parts))
    return found
