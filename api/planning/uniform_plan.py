"""Uniform plan of simulate's flags: one strategy, evenly split blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from ...costmodel.simulation.simulator import max_microbatches
from ...planner.solve.problem import Problem
from ...planner.space.shard_levels import with_degrees
from ...spec.choices import SEQUENCE_PARALLELS
from ...spec.errors import InputError, Word, one_of
from ...spec.limits import MAX_DEGREE
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import ModelSpec
from ...spec.model.tensor_split import split_sizes
from ...spec.numbers import divisors
from ...spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage
from ...spec.recomputation import resolve_recompute
from ...spec.report.report import Assumption
from ...spec.rules.plan_rules import schedule_stack_violation, schedule_violation
from ...spec.schedules.stage_order import ALL_KINDS, V_KINDS, ScheduleKind, chunk_position
from ...spec.strategy import LayerStrategy, Sharding
from ...spec.technique import Values
from ...spec.technique_values import value_of_word, with_word
from ...spec.techniques import TECHNIQUES
from ..problem.arguments import TYPE_NAMES, check_types
from .layer_cut import LayerCounts, LayerCut, check_even_cut, chunk_blocks
from .stage_placement import place_stages
from .uniform_checks import check_uniform_plan
from .uniform_chunks import ChunkSplitter, block_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformStrategy:
    """Simulate's strategy flags; None where left out.

    ``layers_per_stage`` and its kin count blocks; embedding and head join the ends.
    ``techniques``: words of the flags named after techniques.
    """

    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None
    layers_per_stage: LayerCounts | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    sp: str | None = None
    shard: str | None = None
    schedule: str | None = None
    micro_batch: int | None = None
    recompute: str | None = None
    techniques: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_flags(
        cls, values: Mapping[str, Any], techniques: Values = TECHNIQUES
    ) -> UniformStrategy:
        """The strategy flags among ``values``, by name; other names are ignored."""
        core = {name: values[name] for name in CORE_FLAGS if name in values}
        words = {t.name: values[t.name] for t in techniques if values.get(t.name) is not None}
        return cls(**core, techniques=words)


CORE_FLAGS = tuple(item.name for item in fields(UniformStrategy) if item.name != "techniques")


def strategy_flags(techniques: Values = TECHNIQUES) -> tuple[str, ...]:
    """Names of simulate's strategy flags, those of techniques last."""
    return (*CORE_FLAGS, *(technique.name for technique in techniques))


def uniform_plan(
    problem: Problem, flags: UniformStrategy, cut: ChunkSplitter | None = None
) -> tuple[Plan, tuple[Assumption, ...]]:
    """The plan of the flags, and the assumptions for omitted ones.

    ``cut`` splits layers into chunks; by default blocks in equal runs, or as the flags say.

    Raises:
        InputError: a degree that does not divide, a product that misses the devices.
        NotBuiltError: a contract value that this version does not support.
    """
    check_types(flags)
    for name, word in flags.techniques.items():
        if not isinstance(word, str):
            raise InputError(f"--{name.replace('_', '-')}", repr(word), TYPE_NAMES["str"])
    notes: list[Assumption] = []
    typed = LayerCut.from_flags(
        flags.layers_per_stage, flags.first_stage_layers, flags.last_stage_layers
    )
    if typed.counts is not None and flags.pp is None:
        flags = replace(flags, pp=len(typed.counts))
    defaults = {"vpp": 2 if flags.schedule in V_KINDS else 1}
    degrees = {
        name: _degree(name, getattr(flags, name), notes, defaults.get(name, 1))
        for name in ("tp", "pp", "vpp", "cp", "ep", "etp")
    }
    for name in ("ep", "etp"):
        if degrees[name] != 1 and not any(experts_of(x) for x in problem.model.kinds()):
            raise InputError(f"--{name}", degrees[name], "1: the model has no experts", 1)
    tp, pp, vpp, cp = (degrees[name] for name in ("tp", "pp", "vpp", "cp"))
    is_even = cut is None and typed.is_even
    dp = _data_parallel(problem, flags.dp, degrees, notes, is_even)
    strategy = block_strategy(flags, problem, tp * cp * dp, notes)
    strategy = replace(strategy, ep=degrees["ep"], etp=degrees["etp"])
    micro_batch = _degree("micro-batch", flags.micro_batch, notes)
    schedule = flags.schedule if flags.schedule in ALL_KINDS else "1f1b"
    most = max_microbatches(pp, vpp, schedule)
    microbatches = _microbatches(problem, micro_batch, dp, most)
    kind = _schedule(flags.schedule, vpp, notes)
    if cut is None:
        chunks = _chunks(problem.model, typed, (pp, vpp), kind, strategy, pp * dp)
    else:
        chunks = cut(problem.model, pp * vpp, strategy)
    shape, batch = (pp, vpp, tp * cp * dp), (micro_batch, microbatches)
    program = _program_values(flags, problem)
    plan = _build(problem, strategy, chunks, shape, kind, batch, program)
    return plan, tuple(notes)


def _default_note(name: str, value: object) -> Assumption:
    return Assumption(path=f"--{name}", value=value, why="not given")


def _degree(name: str, typed: int | None, notes: list[Assumption], default: int = 1) -> int:
    if typed is None:
        notes.append(_default_note(name, default))
        return default
    if not 1 <= typed <= MAX_DEGREE:
        near = 1 if typed < 1 else MAX_DEGREE
        raise InputError(f"--{name}", typed, f"a whole number from 1 to {MAX_DEGREE}", near)
    return typed


def _choice(
    name: str, typed: str | None, default: Word, words: tuple[Word, ...], notes: list[Assumption]
) -> Word:
    if typed is None:
        notes.append(_default_note(name, default))
        return default
    return one_of(f"--{name}", typed, words)


def _chunks(
    model: ModelSpec,
    typed: LayerCut,
    pipeline: tuple[int, int],
    kind: ScheduleKind,
    strategy: LayerStrategy,
    devices: int,
) -> list[tuple[LayerPlan, ...]]:
    """Layers of each chunk; ``devices`` are shared by pipeline and data parallelism."""
    (pp, vpp), blocks = pipeline, model.block_count
    if typed.is_even:
        check_even_cut(blocks, pipeline, devices)
        return block_chunks(model, (blocks // (pp * vpp),) * (pp * vpp), strategy)
    counts = chunk_blocks(typed.blocks(blocks, pp), vpp, kind)
    return block_chunks(model, counts, strategy)


def _data_parallel(
    problem: Problem,
    dp: int | None,
    degrees: dict[str, int],
    notes: list[Assumption],
    is_even: bool,
) -> int:
    devices = problem.cluster.device_count
    names = [n for n in ("tp", "pp", "cp") if n != "cp" or degrees[n] > 1]
    degree = math.prod(degrees[n] for n in names)
    if devices % degree:
        raise InputError(
            " x ".join(f"--{n}" for n in names),
            " x ".join(str(degrees[n]) for n in names) + f" = {degree}",
            f"a product that divides the {devices} devices",
            " x ".join(map(str, _nearest_degrees(problem, degrees, names, is_even))),
        )
    rest = devices // degree
    if dp is None:
        notes.append(_default_note("dp", rest))
        return rest
    if dp != rest:
        allowed = f"{rest}, so that {' x '.join(names)} x dp uses the {devices} devices"
        raise InputError("--dp", dp, allowed, rest)
    return dp


def _nearest_degrees(
    problem: Problem, degrees: dict[str, int], names: list[str], is_even: bool
) -> tuple[int, ...]:
    """Degrees nearest to the typed ones whose product divides the devices.

    Stages divide the blocks too if the cut is even, and tp the sizes of the layers.
    """
    devices, blocks = problem.cluster.device_count, problem.model.block_count
    sizes = [n for layer in problem.model.kinds() for n in split_sizes(layer).values()]
    chunks = degrees["vpp"] if blocks % degrees["vpp"] == 0 else 1
    limits = {"tp": math.gcd(*sizes), "pp": blocks // chunks if is_even else 0, "cp": 0}
    choices = [divisors(math.gcd(devices, limits[name])) for name in names]
    legal = (found for found in product(*choices) if devices % math.prod(found) == 0)
    typed = [degrees[name] for name in names]

    def distance(found: tuple[int, ...]) -> tuple[float, ...]:
        pairs = list(zip(found, typed, strict=True))
        changed = sum(a != b for a, b in pairs)
        return (changed, sum(abs(math.log(a / b)) for a, b in pairs), *found)

    return min(legal, key=distance)


def block_strategy(
    flags: UniformStrategy, problem: Problem, ranks: int, notes: list[Assumption]
) -> LayerStrategy:
    """The flags' strategy of a block, without degrees of experts.

    Args:
        flags: with legal degrees.
        problem: whose model recomputes and whose cluster shards.
        ranks: of the stage.
        notes: where assumptions for omitted flags are added.

    Raises:
        InputError: a word that is not allowed, or a degree that does not divide.
    """
    tp, cp = flags.tp or 1, flags.cp or 1
    sp = _choice("sp", flags.sp, "none", SEQUENCE_PARALLELS, notes)
    if sp != "none" and tp == 1:
        notes.append(Assumption(path="--sp", value="none", why="tp 1 leaves nothing to split"))
    if flags.recompute is None:
        notes.append(_default_note("recompute", "none"))
    recompute = resolve_recompute(flags.recompute or "none", problem.model, "--recompute")
    shard = flags.shard
    if shard is None:
        notes.append(_default_note("shard", "zero0"))
        shard = "zero0"
    strategy = LayerStrategy(
        tp=tp,
        sequence_parallel=sp if tp > 1 else "none",
        cp=cp,
        recompute=recompute,
    )
    for technique, _ in problem.techniques.plannable:
        if technique.name in flags.techniques and technique.program is None:
            word = flags.techniques[technique.name]
            strategy = with_word(strategy, technique, word, technique.flag)
    replicas, inner = strategy.state_ranks(ranks), strategy.weight_split
    degrees = Sharding.from_text(with_degrees(shard, problem.cluster, inner, replicas), replicas)
    return replace(strategy, shard=degrees)


def _program_values(flags: UniformStrategy, problem: Problem) -> dict[str, Any]:
    """Values of the flags of techniques of whole programs."""
    values = {
        technique.name: value_of_word(technique, flags.techniques[technique.name], technique.flag)
        for technique, _ in problem.techniques.plannable
        if technique.name in flags.techniques and technique.program is not None
    }
    return {name: value for name, value in values.items() if value is not None}


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


def _schedule(typed: str | None, vpp: int, notes: list[Assumption]) -> ScheduleKind:
    default: ScheduleKind = "interleaved" if vpp > 1 else "1f1b"
    return _choice("schedule", typed, default, ALL_KINDS, notes)


def _build(
    problem: Problem,
    strategy: LayerStrategy,
    chunks: list[tuple[LayerPlan, ...]],
    shape: tuple[int, int, int],
    kind: ScheduleKind,
    batch: tuple[int, int],
    program: Mapping[str, Any],
) -> Plan:
    pp, vpp, ranks = shape
    if reason := schedule_violation(kind, pp, vpp, batch[1], len(problem.model.layers())):
        raise InputError("--schedule", kind, reason)
    if reason := schedule_stack_violation(kind, problem.stack):
        raise InputError("--schedule", kind, f"one that the stack can say ({reason})", "1f1b")
    devices = place_stages(problem.cluster, pp, ranks)
    stages = tuple(
        Stage(
            devices=(devices[s],),
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
                techniques=dict(program),
            ),
        ),
    )
    check_uniform_plan(problem, strategy, ranks, plan)
    return plan
