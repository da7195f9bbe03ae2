"""The plan nearest to a given one that Galvatron's JSON says layer by layer.

Layers keep their own degrees. What changes is what no key says: other recomputation than of whole
blocks, other sharding than default_dp_type or zero3, tensor parallelism without sequence
parallelism, strategies that embedding and head do not share, and techniques.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from ....spec.cluster.stack_spec import StackSpec
from ....spec.model.model_spec import BlockLayer, Layer
from ....spec.plan.layer_cuts import after_blocks
from ....spec.plan.plan import Plan, Schedule
from ....spec.rules.stack_limits import stack_plan_violations
from ....spec.strategy import LayerStrategy, Sharding
from ...planning.uniform_chunks import strategy_chunks
from ..exportable import ExportablePlan
from ..nearest import Change, Price
from .write import DEFAULTS, shard_word

WHOLE = ("none", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Values that stand in for decisions that no key says."""

    recompute: str
    default: str
    ends: LayerStrategy


def layerwise_plan(
    plan: ExportablePlan, stack: StackSpec, price: Price
) -> tuple[Plan, tuple[Change, ...]] | None:
    """The nearest plan, and what changes; None where pipeline or model leave none.

    Args:
        plan: any plan.
        stack: Galvatron's.
        price: of a plan.
    """
    counts = plan.chunk_blocks
    if plan.vpp > 1 or 0 in counts:
        return None
    given = tuple(plan.plan.program.layer_strategies())
    found = []
    for choice in _choices(plan, given):
        taken = [
            _said(layer, own, choice, plan.stage_ranks)
            for layer, own in zip(plan.layers, given, strict=True)
        ]
        made = _built(plan, taken, stack)
        changes = (*_changes(plan, given, taken), *_pipeline_changes(plan, made))
        if not changes:
            return plan.plan, ()
        if not made.check() and not stack_plan_violations(made, stack):
            found.append((len(changes), made, changes))
    if not found:
        return None
    fewest = min(count for count, *_ in found)
    _, made, changes = min((x for x in found if x[0] == fewest), key=lambda x: price(x[1]))
    return made, changes


def _choices(plan: ExportablePlan, given: tuple[LayerStrategy, ...]) -> Iterator[_Choice]:
    ends = dict.fromkeys(
        own
        for layer, own in zip(plan.layers, given, strict=True)
        if not isinstance(layer, BlockLayer)
    )
    for recompute, default, own in product(WHOLE, DEFAULTS, ends):
        yield _Choice(recompute=recompute, default=default, ends=own)


def _said(layer: Layer, own: LayerStrategy, choice: _Choice, ranks: int) -> LayerStrategy:
    """A layer's strategy as the JSON says it."""
    is_block = isinstance(layer, BlockLayer)
    strategy = own if is_block else choice.ends
    if strategy.tp > 1 and strategy.sequence_parallel == "none":
        strategy = replace(strategy, sequence_parallel="megatron")
    if strategy.recompute not in WHOLE:
        strategy = replace(strategy, recompute=choice.recompute if is_block else "none")
    word = shard_word(strategy, ranks)
    shards = strategy.shard.gathers_each_use or strategy.shard.secondary_parameters > 1
    said = ("zero3" if shards else choice.default) if word else "zero0"
    shard = Sharding.from_text(said, strategy.state_ranks(ranks))
    return replace(strategy, shard=shard, techniques={})


def _built(plan: ExportablePlan, taken: list[LayerStrategy], stack: StackSpec) -> Plan:
    """The plan under other strategies, cut by blocks and without techniques of the program."""
    is_block = [isinstance(layer, BlockLayer) for layer in plan.layers]
    boundaries = after_blocks(is_block, plan.chunk_blocks)
    chunks = strategy_chunks(plan.model, boundaries, taken)
    program, schedule = plan.plan.program, plan.plan.program.schedule
    kind = schedule.kind if schedule.kind in stack.schedules else "1f1b"
    samples = program.micro_batch_samples
    micro = max(1, samples // taken[0].data_parallel(plan.stage_ranks))
    stages = tuple(
        replace(stage, virtual_stages=(chunk,))
        for stage, chunk in zip(program.stages, chunks, strict=True)
    )
    made = Schedule(kind=kind, micro_batch=micro, microbatches=schedule.microbatches)
    return replace(
        plan.plan, programs=(replace(program, stages=stages, schedule=made, techniques={}),)
    )


ASPECTS: dict[str, Callable[[LayerStrategy, int], str]] = {
    "recompute": lambda strategy, ranks: strategy.recompute,
    "sp": lambda strategy, ranks: strategy.sequence_parallel,
    "shard": lambda strategy, ranks: shard_word(strategy, ranks) or "zero0",
    "techniques": lambda strategy, ranks: ", ".join(sorted(strategy.techniques)) or "none",
}


def _changes(
    plan: ExportablePlan, given: tuple[LayerStrategy, ...], taken: list[LayerStrategy]
) -> tuple[Change, ...]:
    """Differences of the layers' strategies, one for each aspect and pair of words."""
    found, ranks = [], plan.stage_ranks
    ends = {
        own
        for layer, own in zip(plan.layers, given, strict=True)
        if not isinstance(layer, BlockLayer)
    }
    if len(ends) > 1:
        text = f"{len(ends)} strategies"
        found.append(Change(what="embedding and head", given=text, instead="one strategy"))
    for name, word in ASPECTS.items():
        pairs = [
            (word(own, ranks), word(new, ranks))
            for layer, own, new in zip(plan.layers, given, taken, strict=True)
            if len(ends) == 1 or isinstance(layer, BlockLayer)
        ]
        for before, after in dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]):
            count = pairs.count((before, after))
            where = "" if count == len(pairs) else f" in {count} layer{'s' if count > 1 else ''}"
            found.append(Change(what=name, given=before + where, instead=after))
    return tuple(found)


def _pipeline_changes(plan: ExportablePlan, made: Plan) -> Iterator[Change]:
    """Differences of schedule, cut and the program's techniques."""
    before, after = plan.plan.program, made.program
    if before.schedule.kind != after.schedule.kind:
        yield Change(
            what="schedule", given=before.schedule.kind, instead=after.schedule.kind
        )
    starts = [_sizes(program_plan) for program_plan in (plan.plan, made)]
    if starts[0] != starts[1]:
        given, instead = (" ".join(map(str, sizes)) for sizes in starts)
        yield Change(what="layers of stages", given=given, instead=instead)
    if before.techniques:
        names = ", ".join(before.techniques)
        yield Change(what="program techniques", given=names, instead="none")


def _sizes(plan: Plan) -> tuple[int, ...]:
    return tuple(
        sum(part.layers[2] - part.layers[1] + 1 for part in parts)
        for _, _, parts in plan.program.chunks()
    )
