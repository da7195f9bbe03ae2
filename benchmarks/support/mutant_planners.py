"""Faults to put into the planner, each one function replaced."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from shardwright.planner.bounds import (
    knapsack_bounds,
    shape_relaxations,
    shape_tables,
)
from shardwright.planner.bounds.knapsack_bounds import KnapsackBounds
from shardwright.planner.bounds.shape_bounds import ShapeBounds
from shardwright.planner.bounds.shape_context import ShapeContexts
from shardwright.planner.bounds.shape_relaxations import ShapeRelaxations
from shardwright.planner.candidates import evaluator
from shardwright.planner.candidates.evaluator import Decision, Outcome
from shardwright.planner.chains import pass_chains
from shardwright.planner.dynamic_programming import enumeration
from shardwright.planner.relaxation import column_generation
from shardwright.planner.relaxation.stage_feasibility import StageFeasibility
from shardwright.planner.search import enumeration as search_enumeration
from shardwright.planner.search.enumeration import Enumeration
from shardwright.planner.search.incumbents import Incumbents
from shardwright.planner.search.proof import Proof
from shardwright.planner.search.roles import Nodes
from shardwright.planner.space import layer_splits, search_space
from shardwright.planner.space.layer_splits import Splits
from shardwright.planner.space.search_space import PipelineShape, SearchSpace
from shardwright.planner.tables import layer_costs, option_table
from shardwright.planner.tables.option_table import OptionTable, OptionTables
from shardwright.planner.tables.pass_table import PassTable
from shardwright.spec.strategy import Sharding

Wrap = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault: ``make`` turns an attribute of ``holder`` into a wrong one."""

    name: str
    what: str
    holder: Any
    attribute: str
    make: Wrap


def scaled(factor: float) -> Wrap:
    """The result times a factor."""

    def wrap(plain: Any) -> Any:
        return lambda *arguments, **named: plain(*arguments, **named) * factor

    return wrap


def kept_if(keep: Callable[[Any], bool], kind: Callable[[Any], Any] = list) -> Wrap:
    """Only those of the results that pass."""

    def wrap(plain: Any) -> Any:
        return lambda *arguments: kind(x for x in plain(*arguments) if keep(x))

    return wrap


def _longer(factor: float) -> Wrap:

    def wrap(plain: Any) -> Any:
        def bound(self: Any, shape: Any, enough_s: float = float("inf"), **how: Any) -> float:
            return float(plain(self, shape, enough_s, **how)) * factor

        return bound

    return wrap


def _dearer(plain: Any) -> Any:

    def least(*arguments: Any) -> tuple[float, list[int]]:
        seconds, option_table = plain(*arguments)
        return seconds * 1.03, option_table

    return least


def _twice(plain: Any) -> Any:
    return lambda *arguments: tuple(2 * counts for counts in plain(*arguments))


def answering(value: Any) -> Wrap:
    """Always the same answer."""
    return lambda plain: lambda *arguments: value


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _partial(level: str) -> Callable[[Sharding], bool]:

    def keep(s: Sharding) -> bool:
        degrees = (s.parameters, s.gradients, s.optimizer)
        if level == "zero1":
            return not degrees[0] == degrees[1] == 1 < degrees[2]
        return not degrees[0] == 1 < degrees[1]

    return keep


def _without_hsdp(plain: Any) -> Any:
    def shardings(ranks: int, *inner: Any) -> list[Sharding]:
        return [s for s in plain(ranks, *inner) if s.parameters in (1, ranks)]

    return shardings


def _all_devices(plain: Any) -> Any:
    def shapes(self: SearchSpace) -> Iterator[PipelineShape]:
        every = list(plain(self))
        return iter([s for s in every if s.stages * s.ranks == self.device_count])

    return shapes


def _pins_only(plain: Any) -> Any:
    def allowed(self: SearchSpace, axis: str, value: Any) -> bool:
        return all(p.value == value for p in self.request.pins if p.key == axis)

    return allowed


def _first_cuts(plain: Any) -> Any:
    return lambda layers, chunks: itertools.islice(plain(layers, chunks), 1)


def _first_plan(plain: Any) -> Any:
    return lambda *arguments: itertools.islice(plain(*arguments), 1)


def _half_of_the_plans(plain: Any) -> Any:
    return lambda *arguments: itertools.islice(plain(*arguments), 0, None, 2)


def _one_more_held(plain: Any) -> Any:
    return lambda self, stage: [in_flight + 1 for in_flight in plain(self, stage)]


def _ramp_always(plain: Any) -> Any:

    def bound(shape: PipelineShape, *rest: Any) -> Any:
        return plain(shape._replace(kind="1f1b") if shape.chunks == 1 else shape, *rest) * (
            1 + (shape.stages - 1) / shape.microbatches if shape.kind == "interleaved" else 1
        )

    return bound


def _closed_form_always(plain: Any) -> Any:
    """The closed form of 1F1B taken for interleaved stages too."""

    def bound(self: KnapsackBounds, shape: PipelineShape, capacity_bytes: float) -> float:
        bound_s: float = plain(self, shape._replace(kind="1f1b"), capacity_bytes)
        return bound_s

    return bound


def _one_stage_memory(plain: Any) -> Any:
    return lambda self, shape, capacity_bytes: plain(self, shape, capacity_bytes / shape.stages)


def _likely_as_bound(plain: Any) -> Any:

    def seconds(self: OptionTables, *arguments: Any) -> tuple[Any, Any, Any]:
        least_s, _, estimated_s = plain(self, *arguments)
        return least_s, estimated_s, estimated_s

    return seconds


def _more_micro_batches(plain: Any) -> Any:
    return lambda microbatches: plain(microbatches + 1)


def _states_twice(plain: Any) -> Any:
    """Optimizer states counted once more."""

    def resident(unit: Any, contiguous: bool) -> float:
        total: float = plain(unit, contiguous)
        return total + float(unit.optimizer_bytes)

    return resident


def _slowest_first(plain: Any) -> Any:
    return lambda self, outcome: (-outcome.step_time_s, *plain(self, outcome)[1:])


def _two_stages_reversed(plain: Any) -> Any:
    """Cuts of two stages swapped around when the plan is written."""

    def build(request: Any, decision: Decision) -> Any:
        if decision.shape.positions != 2:
            return plain(request, decision)
        layers = decision.boundaries[-1]
        return plain(
            request, decision._replace(boundaries=(0, layers - decision.boundaries[1], layers))
        )

    return build


def _later_proof(plain: Any) -> Any:

    def prove(self: Proof, nodes: Nodes) -> tuple[float, bool]:
        half: Any = nodes.queue[: len(nodes.queue) // 2]
        result: tuple[float, bool] = plain(self, replace(nodes, queue=half))
        return result

    return prove


def _no_recompute(how: str) -> Wrap:
    return kept_if(lambda recompute: recompute != how)


def _own_embedding(plain: Any) -> Any:

    def tied(self: ShapeContexts, shape: PipelineShape) -> dict[int, tuple[int, ...]]:
        found = plain(self, shape)
        return {k: v for k, v in found.items() if v}

    return tied


def _without_last(plain: Any) -> Any:

    def make(self: SearchSpace, *arguments: Any) -> Any:
        every = list(plain(self, *arguments))
        return iter(every[:-1] if len(every) > 1 else every)

    return make


def _always_fits(plain: Any) -> Any:
    return property(lambda self: True)


def _fits_by_prediction(plain: Any) -> Any:

    def feasible(self: Outcome) -> bool:
        return all(r.reserved_bytes <= r.capacity_bytes for r in self.simulation.memory)

    return property(feasible)


def _impatient(plain: Any) -> Any:
    return lambda self, shape: plain(self, shape) * 0.97


def _kept_twice(plain: Any) -> Any:
    """Every live micro-batch keeps what two would."""

    def make(self: OptionTables, *arguments: Any) -> OptionTable:
        table = plain(self, *arguments)
        return replace(table, kept_bytes=2 * table.kept_bytes)

    return make


def _mutant(name: str, what: str, holder: Any, attribute: str, make: Wrap) -> Mutant:
    return Mutant(name=name, what=what, holder=holder, attribute=attribute, make=make)


NOT_TWO = kept_if(_partial("zero2"))
NOT_ONE = kept_if(_partial("zero1"))
POWERS = kept_if(_is_power)

MUTANTS: tuple[Mutant, ...] = (
    _mutant("shape bound 3/2", "bounds of shapes 1.5 times too high", ShapeBounds, "exact_s",
            scaled(1.5)),
    _mutant("shape bound 1.02", "bounds of shapes 2 % too high", ShapeBounds, "exact_s",
            scaled(1.02)),
    _mutant("plan bound 1.05", "bounds of plans 5 % too high", enumeration, "_bounds",
            scaled(1.05)),
    _mutant("closed form", "interleaved stages bounded by the closed form of 1F1B", KnapsackBounds,
            "bound", _closed_form_always),
    _mutant("ramp", "plans of interleaved stages bounded with the whole fill", enumeration,
            "_bounds", _ramp_always),
    _mutant("one device's memory", "shapes bounded with the memory of one stage", KnapsackBounds,
            "bound", _one_stage_memory),
    _mutant("estimates as bounds", "estimates of overlapped passes taken for bounds",
            OptionTables, "_seconds", _likely_as_bound),
    _mutant("a micro-batch more", "layers bounded with one micro-batch too many", option_table,
            "_pass_counts", _more_micro_batches),
    _mutant("greedy hull", "relaxed knapsack 1 % too high", knapsack_bounds, "fractional_knapsack",
            scaled(1.01)),
    _mutant("live budget 0.9", "a tenth of the memory is not used", ShapeContexts,
            "live_budget_bytes", scaled(0.9)),
    _mutant("states twice", "optimizer states counted twice", layer_costs, "resident_bytes",
            _states_twice),
    _mutant("kept twice", "activations counted twice", OptionTables, "table", _kept_twice),
    _mutant("one more in flight", "one micro-batch too many in flight", PipelineShape,
            "first_in_flight", _one_more_held),
    _mutant("chains 1.05", "chains of passes 5 % too long", ShapeRelaxations, "bound",
            _longer(1.05)),
    _mutant("one chain more", "passes of a stage counted twice in chains", pass_chains,
            "_stage_counts",
            _twice),
    _mutant("free cuts 1.1", "stages without fixed cuts bounded 10 % too high", shape_relaxations,
            "free_boundary_bound", scaled(1.1)),
    _mutant("runs 1.05", "what stages may hold bounded 5 % too high", StageFeasibility, "_seconds",
            scaled(1.05)),
    _mutant("held 1.1", "stages bounded with a tenth more bytes", PassTable, "bytes_at",
            scaled(1.1)),
    _mutant("relaxed 1.03", "relaxed steps bounded 3 % too high", column_generation,
            "lagrangian_bound",
            _dearer),
    _mutant("first cuts only", "one way to cut the layers is enumerated", shape_tables,
            "all_boundaries",
            _first_cuts),
    _mutant("every second plan", "every second plan is enumerated", search_enumeration,
            "bounded_plans", _half_of_the_plans),
    _mutant("first plan only", "one plan of every cut is enumerated", search_enumeration,
            "bounded_plans", _first_plan),
    _mutant("nothing enumerated", "shapes count as enumerated and are not", Enumeration, "run",
            answering(True)),
    _mutant("half a proof", "the proof leaves out half of the shapes", Proof, "run",
            _later_proof),
    _mutant("impatient", "simulations end 3 % too early", Incumbents, "_keep_s", _impatient),
    _mutant("no hsdp", "sharding over a part of the ranks is left out", search_space, "shardings",
            _without_hsdp),
    _mutant("no zero1", "zero1 is left out", search_space, "shardings", NOT_ONE),
    _mutant("no zero2", "zero2 is left out", search_space, "shardings", NOT_TWO),
    _mutant("no selective", "selective recomputation is left out", Splits, "recomputes",
            _no_recompute("selective")),
    _mutant("no full", "full recomputation is left out", Splits, "recomputes",
            _no_recompute("full")),
    _mutant("no sequence parallelism", "Megatron sequence parallelism is left out", Splits,
            "_sequences", kept_if(lambda sp: sp != "megatron", iter)),
    _mutant("powers of two", "parts of the batch are powers of two", search_space, "divisors",
            POWERS),
    _mutant("degrees of two", "degrees are powers of two", layer_splits, "divisors", POWERS),
    _mutant("no idle devices", "every device must work", SearchSpace, "shapes", _all_devices),
    _mutant("no interleaving", "interleaved stages are left out", SearchSpace, "shapes",
            kept_if(lambda s: s.kind != "interleaved", iter)),
    _mutant("a strategy lost", "the last strategy of a split is left out", SearchSpace,
            "_strategies", _without_last),
    _mutant("value lists", "lists of allowed values are not heeded by pipelines", SearchSpace,
            "allows", _pins_only),
    _mutant("pins", "pins on layers are not heeded", search_space, "layer_allows", answering(True)),
    _mutant("layer rules", "rules of layers are not heeded", layer_splits, "layer_violation",
            answering(None)),
    _mutant("stack rules", "rules of the stack are not heeded", search_space, "stack_violation",
            answering(None)),
    _mutant("tied rule", "embedding and head that share a weight may differ", evaluator,
            "tied_embedding_violation", answering(None)),
    _mutant("tied twice", "a shared weight is counted twice", ShapeContexts, "tied_embeddings",
            _own_embedding),
    _mutant("memory ignored", "every plan fits", Outcome, "feasible", _always_fits),
    _mutant("no margin", "the margin of memory is forgotten", Outcome, "feasible",
            _fits_by_prediction),
    _mutant("slowest first", "plans are answered slowest first", Incumbents, "rank",
            _slowest_first),
    _mutant("cuts swapped", "plans of two stages are written with their cuts swapped",
            evaluator, "build_plan", _two_stages_reversed),
)  # fmt: skip
