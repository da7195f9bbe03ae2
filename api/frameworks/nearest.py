"""The plan nearest to a given one that a framework can say.

A plan that breaks limits is changed in as few decisions as possible; among the legal plans with so
few changes the fastest is taken, one that fits if there is any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product

from ...spec.cluster.stack_spec import ANY_TECHNIQUE, StackSpec
from ...spec.errors import InputError
from ...spec.model.model_spec import BlockLayer
from ...spec.numbers import divisors
from ...spec.plan.layer_cuts import cuts
from ...spec.plan.plan import Plan, Schedule, Stage
from ...spec.plan.uniform_strategy import strategy_count
from ...spec.rules.stack_limits import stack_plan_violations
from ...spec.schedules.stage_order import V_KINDS, chunk_position
from ...spec.strategy import LayerStrategy, Sharding
from ..planning.uniform_chunks import layer_chunks
from .exportable import ExportablePlan, exportable

MOST_PRICED = 24
"""Plans of as few changes that are priced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What a uniform plan decides, a field a decision that may change."""

    strategy_of_all: LayerStrategy
    shard: str
    schedule: tuple[str, int]
    sizes: tuple[int, ...] | None
    pp: int

    def words(self) -> dict[str, str]:
        """Each decision in words."""
        strategy = self.strategy_of_all
        kind, vpp = self.schedule
        return {
            "recompute": strategy.recompute,
            "sp": strategy.sequence_parallel if strategy.tp > 1 else "none",
            "pp": str(self.pp),
            "cp": str(strategy.cp),
            "ep": str(strategy.ep),
            "etp": str(strategy.etp),
            "techniques": ", ".join(sorted(strategy.techniques)) or "none",
            "shard": self.shard,
            "schedule": kind if vpp == 1 else f"{kind} with vpp {vpp}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A decision that a framework cannot say, and what it says instead."""

    what: str
    given: str
    instead: str


Price = Callable[[Plan], tuple[bool, float]]
"""Whether a plan overflows, and its seconds."""


def nearest_plan(
    plan: ExportablePlan, stack: StackSpec, price: Price
) -> tuple[Plan, tuple[Change, ...]]:
    """The nearest plan within a stack's limits, and what changes.

    Args:
        plan: any plan.
        stack: the framework's, narrowed to what its files say.
        price: of a plan.

    Raises:
        InputError: no plan near it is legal there.
    """
    if not stack_plan_violations(plan.plan, stack):
        return plan.plan, ()
    base = _decisions(plan)
    axes = _alternatives(plan, base, stack)
    for changes in range(len(axes) + 1):
        legal = list(_legal(plan, base, axes, changes, stack))
        if legal:
            chosen = min(legal, key=lambda pair: price(pair[0]))
            return chosen[0], _changes(plan, base, *chosen)
    violation = stack_plan_violations(plan.plan, stack)[0]
    raise InputError("plan", violation, f"a plan near one that the stack {stack.name} can run")


def _decisions(plan: ExportablePlan) -> Decisions:
    return Decisions(
        strategy_of_all=plan.strategy,
        shard=plan.shard,
        schedule=(plan.kind, plan.vpp),
        sizes=plan.chunk_sizes,
        pp=plan.pp,
    )


Axes = Mapping[str, list[Callable[[Decisions], Decisions]]]


def _alternatives(plan: ExportablePlan, base: Decisions, stack: StackSpec) -> Axes:
    """Other values of each decision, as changes of the decisions."""
    strategy = base.strategy_of_all
    axes: dict[str, list[Callable[[Decisions], Decisions]]] = {}
    axes["recompute"] = [
        _with_strategy(recompute=word) for word in _recompute_words(strategy.recompute, stack)
    ]
    if strategy.tp > 1:
        others = (w for w in stack.limits.sequence_parallel if w != strategy.sequence_parallel)
        axes["sp"] = [_with_strategy(sequence_parallel=word) for word in others]
    kept = stack.limits.techniques
    if strategy.techniques and ANY_TECHNIQUE not in kept:
        known = {name: value for name, value in strategy.techniques.items() if name in kept}
        axes["techniques"] = [_with_strategy(techniques=known), _with_strategy(techniques={})]
    if plan.pp > 1 and "pp" not in stack.limits.axes:
        axes["pp"] = [_without_pipeline]
    if strategy.cp > 1:
        axes["cp"] = [_with_strategy(cp=1)]
    if strategy.ep > 1 or strategy.etp > 1:
        axes["ep"] = [_with_strategy(ep=1, etp=1), _with_strategy(etp=1)]
    words = ("zero0", "zero1", "zero2", "zero3", *(f"hsdp:{d}" for d in divisors(plan.replicas)))
    axes["shard"] = [_with_shard(word) for word in words if word != base.shard]
    axes["schedule"] = [_with_schedule(pair) for pair in _schedules(plan, stack)]
    axes["sizes"] = [_with_sizes]
    return {name: values for name, values in axes.items() if values}


def _recompute_words(word: str, stack: StackSpec) -> list[str]:
    return [other for other in stack.recompute if other != word]


def _with_strategy(**changes: object) -> Callable[[Decisions], Decisions]:
    return lambda item: replace(item, strategy_of_all=replace(item.strategy_of_all, **changes))  # type: ignore[arg-type]


def _with_shard(word: str) -> Callable[[Decisions], Decisions]:
    return lambda item: replace(item, shard=word)


def _with_schedule(pair: tuple[str, int]) -> Callable[[Decisions], Decisions]:
    return lambda item: replace(item, schedule=pair, sizes=None if pair[1] else item.sizes)


def _without_pipeline(item: Decisions) -> Decisions:
    return replace(item, pp=1, schedule=("1f1b", 1), sizes=None)


def _with_sizes(item: Decisions) -> Decisions:
    return replace(item, sizes=None)


def _schedules(plan: ExportablePlan, stack: StackSpec) -> list[tuple[str, int]]:
    """Other schedules with the chunks that they may have."""
    if plan.pp == 1:
        return [("1f1b", 1)] if plan.kind != "1f1b" else []
    pairs: list[tuple[str, int]] = []
    for kind in stack.schedules:
        if kind in V_KINDS:
            chunks = [2]
        elif kind == "interleaved":
            chunks = [n for n in (2, 3, 4) if n * plan.pp <= len(plan.layers)]
        else:
            chunks = [1]
        pairs += [(kind, n) for n in chunks]
    return [pair for pair in pairs if pair != (plan.kind, plan.vpp)]


def _legal(
    plan: ExportablePlan, base: Decisions, axes: Axes, changes: int, stack: StackSpec
) -> Iterator[tuple[Plan, Decisions]]:
    found = 0
    for names in combinations(axes, changes):
        for values in product(*(axes[name] for name in names)):
            decisions = base
            for change in values:
                decisions = change(decisions)
            for made in _plans(plan, decisions, stack):
                if not made.check() and not stack_plan_violations(made, stack):
                    yield made, decisions
                    found += 1
                    break
            if found >= MOST_PRICED:
                return


def _plans(plan: ExportablePlan, decisions: Decisions, stack: StackSpec) -> Iterator[Plan]:
    """Plans of decisions, in each cut that the stack has if the cut is open."""
    strategy = decisions.strategy_of_all
    ranks = plan.devices // decisions.pp
    if ranks % strategy.width:
        return
    dp = strategy.data_parallel(ranks)
    samples = plan.workload.global_batch
    micro = next((n for n in (plan.micro_batch, 1) if samples % (n * dp) == 0), 0)
    if not micro:
        return
    replicas = strategy.state_ranks(ranks)
    try:
        shard = Sharding.from_text(decisions.shard, replicas) if replicas > 1 else Sharding()
    except InputError:
        return
    strategy = replace(strategy, shard=shard)
    kind, vpp = decisions.schedule
    microbatches = samples // (micro * dp)
    schedule = Schedule(kind=kind, micro_batch=micro, microbatches=microbatches)  # type: ignore[arg-type]
    for sizes in _sizes(plan, decisions, stack):
        yield _built(plan, strategy, schedule, (decisions.pp, vpp), sizes)


def _sizes(plan: ExportablePlan, decisions: Decisions, stack: StackSpec) -> list[tuple[int, ...]]:
    if decisions.sizes is not None:
        return [decisions.sizes]
    kind, vpp = decisions.schedule
    is_block = [isinstance(layer, BlockLayer) for layer in plan.layers]
    rule = stack.limits.layer_cut
    found = list(cuts(rule, is_block, kind, decisions.pp, vpp))[:4]  # type: ignore[arg-type]
    return [tuple(b - a for a, b in pairwise(cut)) for cut in found]


def _built(
    plan: ExportablePlan,
    strategy: LayerStrategy,
    schedule: Schedule,
    pipeline: tuple[int, int],
    sizes: tuple[int, ...],
) -> Plan:
    pp, vpp = pipeline
    chunks = layer_chunks(plan.model, sizes, pp * vpp, strategy)
    program = plan.plan.program
    devices = [stage.devices for stage in program.stages]
    if pp < plan.pp:
        first = min(part.first_rank for parts in devices for part in parts)
        devices = [(replace(devices[0][0], first_rank=first, count=plan.devices),)]
    stages = tuple(
        Stage(
            devices=placed,
            mesh_order=program.stages[number].mesh_order,
            virtual_stages=tuple(
                chunks[chunk_position(schedule.kind, number, v, pp)] for v in range(vpp)
            ),
        )
        for number, placed in enumerate(devices)
    )
    techniques = {} if strategy.techniques == {} else program.techniques
    program = replace(program, stages=stages, schedule=schedule, techniques=techniques)
    return replace(plan.plan, programs=(program,))


def _changes(
    plan: ExportablePlan, base: Decisions, made: Plan, decisions: Decisions
) -> tuple[Change, ...]:
    """Differences, decision by decision."""
    before, after = base.words(), decisions.words()
    found = [
        Change(what=name, given=before[name], instead=after[name])
        for name in before
        if before[name] != after[name]
    ]
    layers = plan.layers
    strategies = strategy_count(layers, plan.plan.program.layer_strategies())
    if strategies > 1:
        given = f"{strategies} strategies"
        found.insert(0, Change(what="layers", given=given, instead="one strategy for all"))
    new = exportable(made, plan.stack)
    if plan.chunk_sizes != new.chunk_sizes:
        given, instead = (" ".join(map(str, x.chunk_blocks)) for x in (plan, new))
        found.append(Change(what="blocks of chunks", given=given, instead=instead))
    if plan.plan.program.techniques != made.program.techniques:
        names = ", ".join(plan.plan.program.techniques)
        found.append(Change(what="program techniques", given=names, instead="none"))
    return tuple(found)
