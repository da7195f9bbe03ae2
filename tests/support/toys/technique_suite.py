"""Checks of every technique without ranks: a test class inherits them and names its roles.

Those of runs are in ``toys.technique_ranks``.
"""

from __future__ import annotations

import io
import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pytest
from generators.plan_cases import PLAIN, Case, Sizes
from generators.random_plans import Drawer
from generators.random_spaces import random_cap
from oracles.bound_checks import check_bounds
from oracles.brute_force import Restriction, Space, simulator_of
from published.planning import RULE, compare, planned
from rich.console import Console
from toys.technique_spaces import solved

from shardwright.api.planning.report import solution_report
from shardwright.api.problem.lossy import allow_lossy, lossy_notes
from shardwright.api.problem.pins import resolve_pins
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.terminal.plan import print_report
from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.simulation.timeline import STREAMS
from shardwright.costmodel.technique import TechniquePrice
from shardwright.costmodel.technique_spans import LaneSpans, PricedPass, spans_of
from shardwright.datasets.catalogue.stack import stack
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.planner.space.pins import CORE_KEYS, PIPELINE_KEYS
from shardwright.planner.technique import KnownTechniques, TechniqueChoice
from shardwright.spec.codec import canonical_json, json_schema
from shardwright.spec.errors import InputError
from shardwright.spec.model.model_spec import Layer
from shardwright.spec.plan.plan import Plan, load_plan
from shardwright.spec.report.report import BREAKDOWN_TERMS
from shardwright.spec.schedules.stage_order import ALL_KINDS
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import OFF, TechniqueValue
from shardwright.spec.technique_values import technique_violation, value_of_word, with_value
from shardwright.spec.workload.workload import DtypeRecord

FP32 = DtypeRecord.from_shorthand("fp32")
LONGEST_REASON = 160
SIZES = Sizes(blocks=3, hidden=64, ffn=128, vocab=256)
PLANS = 12
"""Random plans that bounds are held against."""
ROUNDING = 1e-9


def assert_in_order(spans: LaneSpans, pass_s: float) -> None:
    """Hold spans to lie within a pass of so many seconds, one after another on each lane."""
    ends_s: dict[str, float] = {}
    for span in spans:
        assert span.lane not in STREAMS
        assert span.term in BREAKDOWN_TERMS
        assert span.duration_s > 0
        assert span.start_s >= ends_s.get(span.lane, 0.0) - ROUNDING * pass_s
        ends_s[span.lane] = span.start_s + span.duration_s
    assert max(ends_s.values(), default=0.0) <= pass_s * (1 + ROUNDING)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A strategy in which a value is not legal, and a word of the reason."""

    word: str
    because: str
    strategy: LayerStrategy = PLAIN
    ranks: int = 1
    layer: int = 1
    dtype: DtypeRecord = FP32


class TechniqueSuite(ABC):
    """The checks of one technique.

    ``spaces`` are small ones whose restrictions name the technique's words, so that a brute force
    sees every plan; ``refused`` are places where it may not be. ``base`` on ``ranks`` is a strategy
    that every word may stand in; ``asked`` is what a question needs beside the usual, ``pinned``
    what is pinned beside a word, so that a search is short.
    """

    known: KnownTechniques
    name: str
    refused: tuple[Refused, ...]
    base = LayerStrategy()
    sizes = SIZES
    ranks = 1
    asked: Mapping[str, Any] = MappingProxyType({})
    pinned: tuple[str, ...] = ()

    @abstractmethod
    def spaces(self) -> list[Space]: ...

    @cached_property
    def value(self) -> TechniqueValue:
        return next(value for value in self.known.values if value.name == self.name)

    @cached_property
    def price(self) -> TechniquePrice:
        return next(price for price in self.known.prices if price.name == self.name)

    @cached_property
    def choice(self) -> TechniqueChoice:
        return next(choice for choice in self.known.choices if choice.name == self.name)

    @cached_property
    def named(self) -> dict[str, Any]:
        """Every word with its value."""
        return {word: self.value.from_word(word) for word in self.value.words}

    @cached_property
    def plain(self) -> Plan:
        return Case(name="plain", sizes=self.sizes, ranks=1, micro_batch=4).plan()

    def words_in(self, plan: Plan) -> set[str]:
        """Words of a plan's layers, off among them."""
        return {self.value.text_of(strategy) for strategy in plan.layer_strategies()}

    def plan_with(self, word: str) -> Plan:
        """A plan all of whose blocks hold a value."""
        strategy = with_value(self.base, self.name, self.named[word])
        values = self.known.values
        fields = {"sizes": self.sizes, "ranks": self.ranks, "micro_batch": 4}
        case = Case(name=word, strategies=strategy, **fields)  # type: ignore[arg-type]
        return replace(case, techniques=values).plan()

    def test_its_name_is_its_own(self) -> None:
        assert self.price.name == self.choice.name == self.value.name == self.name
        assert self.name.isidentifier()
        assert self.name == self.name.casefold()
        assert self.name not in (*BREAKDOWN_TERMS, *CORE_KEYS, *PIPELINE_KEYS, "technique")

    def test_values_are_frozen_and_read_from_their_words(self) -> None:
        assert OFF not in self.value.words
        assert self.value.from_word("no such word") is None
        assert len({*self.named.values()}) == len(self.named)
        for word, value in self.named.items():
            assert isinstance(value, self.value.value)
            assert self.value.word_of(value) == word
            with pytest.raises(FrozenInstanceError):
                setattr(value, fields(value)[0].name, None)

    def test_families_are_read_from_their_numbers(self) -> None:
        for family in self.value.families:
            for number in (family.low, family.high, round((family.low + family.high) / 3, 4)):
                word = self.value.word_of(family.make(number))
                assert value_of_word(self.value, word, "field") == family.make(number)
            for wrong in ("", "x", "nan", f"{family.low - 1}", f"{family.high + 1}"):
                with pytest.raises(InputError, match=f"field: got {family.word}:{wrong}") as found:
                    value_of_word(self.value, f"{family.word}:{wrong}", "field")
                assert value_of_word(self.value, str(found.value.nearest), "field")
            with pytest.raises(InputError, match=re.escape(family.form)):
                value_of_word(self.value, "no such word", "field")

    def test_plans_survive_json(self) -> None:
        schema = json_schema(self.value.value)
        assert {field.name for field in fields(self.value.value)} == {*schema["properties"]}
        hashes = {self.plain.hash}
        for word in self.named:
            plan = self.plan_with(word)
            text = canonical_json(plan.to_document())
            again = load_plan(text, "plan", self.known.values)
            assert again == plan
            assert self.words_in(again) - {OFF} == {word}
            hashes.add(again.hash)
        assert len(hashes) == 1 + len(self.named)

    def test_off_costs_nothing(self) -> None:
        absent = replace(
            self.known,
            values=tuple(v for v in self.known.values if v.name != self.name),
            prices=tuple(p for p in self.known.prices if p.name != self.name),
            choices=tuple(c for c in self.known.choices if c.name != self.name),
        )
        off = with_value(with_value(LayerStrategy(), self.name, None), self.name, None)
        assert off == LayerStrategy()
        text = canonical_json(self.plain.to_document())
        assert self.name not in text
        assert load_plan(text, "plan", absent.values).hash == self.plain.hash
        off_only = (Restriction(axis=self.name, allowed=(OFF,)),)
        for space in self.spaces():
            others = tuple(r for r in space.restrictions if r.axis != self.name)
            without = planned(replace(space, restrictions=others, techniques=absent))
            held_off = planned(replace(space, restrictions=(*others, *off_only)))
            assert without is not None
            assert held_off is not None
            assert held_off.outcomes[0].plan.hash == without.outcomes[0].plan.hash
            assert held_off.outcomes[0].step_time_s == without.outcomes[0].step_time_s
            assert held_off.lower_bound_s == without.lower_bound_s
            assert held_off.simulated == without.simulated

    def test_reasons_are_one_line(self) -> None:
        layers = self.plain.model.layers()
        places = [*self.refused, Refused(word=self.value.words[0], because="applies to", layer=0)]
        for place in places:
            strategy = with_value(place.strategy, self.name, self.value.from_word(place.word))
            reason = self._reason(layers[place.layer], strategy, place)
            assert reason is not None, place
            assert place.because in reason
            assert "\n" not in reason
            assert len(reason) < LONGEST_REASON
        alone = with_value(self.base, self.name, next(iter(self.named.values())))
        usual = Refused(word="", because="", ranks=self.ranks)
        assert self._reason(layers[1], alone, usual) is None

    def _reason(self, layer: Layer, strategy: LayerStrategy, place: Refused) -> str | None:
        return technique_violation(layer, strategy, place.ranks, place.dtype, self.known.values)

    def test_what_lacks_a_role_is_refused_in_one_line(self) -> None:
        plan = self.plan_with(self.value.words[0])
        assert plan.check(self.known.values) == []
        broken = [str(violation) for violation in plan.check(())]
        assert broken
        assert all(f"technique '{self.name}' is not built yet" in text for text in broken)
        with pytest.raises(InputError, match=f"techniques.{self.name}: got no price"):
            Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"), ()).run(plan)
        asked = replace(self.problem(), techniques=replace(self.known, choices=()))
        with pytest.raises(InputError, match=f"got {self.name}"):
            resolve_pins((f"{self.name}={self.value.words[0]}",), asked)

    def problem(self) -> Problem:
        cluster = f"1x{self.ranks}xA100-80GB"
        usual = {"cluster": cluster, "global_batch": 2, "seq_len": 64, "dtype": "fp32"}
        asked: dict[str, Any] = {**usual, **self.asked}
        found = resolve(Inputs(model=self.sizes.model(), **asked))
        return replace(found, techniques=self.known)

    def test_pins_choose_it(self) -> None:
        asked = self.problem()
        for word in self.named:
            pins = resolve_pins((*self.pinned, f"{self.name}={word}"), asked)
            solution = solve(asked, SolveOptions(pins=pins))
            self.check_pinned(solution.plan, word)
            assert solution.plan.check(self.known.values) == []
            assert {*solution.search.space[self.name]} - {OFF} == {word}
            assert solution.search.lower_bound_s <= solution.prediction.step_time_s
        with pytest.raises(InputError, match=f"--pin {self.name}: got fast-and-free"):
            resolve_pins((f"{self.name}=fast-and-free",), asked)

    def check_pinned(self, plan: Plan, word: str) -> None:
        """Every block holds the word of a pin, and no other layer does."""
        words = [self.value.text_of(s) for s in plan.layer_strategies()]
        assert words == [OFF, *[word] * self.sizes.blocks, OFF]

    def test_lossy_values_are_taken_only_where_they_are_allowed(self) -> None:
        lossy = {word for word, value in self.named.items() if self.value.lossy(value)}
        for word in self.named:
            notes = lossy_notes(self.plan_with(word), self.known.values)
            assert [note.value for note in notes] == [f"{self.name}={word}"] * (word in lossy)
        if not lossy or not self.choice.tries_any:
            with pytest.raises(InputError, match="--allow: got"):
                allow_lossy(self.known, self.name)
            return
        asked = self.problem()
        unasked = solve(asked)
        assert not lossy & {*unasked.search.space[self.name]}
        assert any("--allow" in entry["why"] for entry in unasked.search.left_out)
        allowed = solve(replace(asked, techniques=allow_lossy(self.known, self.name)))
        assert lossy <= {*allowed.search.space[self.name]}
        pins = resolve_pins((f"{self.name}={min(lossy)}",), asked)
        pinned = solution_report(asked, solve(asked, SolveOptions(pins=pins)))
        assert pinned.assumptions[0].path == f"lossy.{self.name}"
        out = Console(record=True, width=200, file=io.StringIO())
        print_report(out, pinned, RULE, ())
        assert out.export_text().startswith(f"lossy: {self.name}={min(lossy)} (")

    def test_prices_are_finite_and_grow_with_the_work(self) -> None:
        machine = Machine(self.plain.cluster)
        pricer = Pricer(machine, stack("shardwright"))
        for word in (OFF, *self.named):
            before_s = 0.0
            for batch in (1, 2, 4, 8):
                time_s = self._block_s(pricer, word, batch)
                assert math.isfinite(time_s)
                assert time_s >= before_s
                if self.price.at_least == "work":
                    assert time_s >= self._block_s(pricer, OFF, batch)
                before_s = time_s

    def test_what_it_shows_lies_within_a_pass(self) -> None:
        """In order on each lane; nothing where the technique is off, or has no hook."""
        pricer, shown = Pricer(Machine(self.plain.cluster), stack("shardwright")), 0
        for word in (OFF, *self.named):
            lowered = self._block(word, 2)
            for way in (lowered.forward, lowered.backward):
                priced = PricedPass(lowered.shape.strategy, (way,), pricer)
                spans = spans_of(lowered.shape.prices, priced)
                assert_in_order(spans, pricer.layer_pass(way).time_s)
                others = tuple(p for p in lowered.shape.prices if p.name != self.name)
                shown += len(spans) - len(spans_of(others, priced))
            assert word != OFF or shown == 0
        assert (shown > 0) == (self.price.spans is not None)

    def _block(self, word: str, batch: int) -> LoweredLayer:
        """A block's micro-batch with a word."""
        program, prices = self.program_with(word), self.known.prices
        software, workload = stack("shardwright"), self.plain.workload
        lowering = Lowering(self.plain.model, workload, software, prices, program)
        shape = lowering.shape(1, self.strategy_with(word), None, batch, False)
        return lower_layer(lowering.layers[1], shape)

    def strategy_with(self, word: str) -> LayerStrategy:
        """A block's strategy with a word."""
        return with_value(self.base, self.name, self.named.get(word))

    def program_with(self, word: str) -> dict[str, Any]:
        """The program's values with a word."""
        return {}

    def _block_s(self, pricer: Pricer, word: str, batch: int) -> float:
        """Seconds of a block's micro-batch both ways, and of what follows its gradients."""
        own = self.strategy_with(word)
        workload, prices = self.plain.workload, self.known.prices
        program = self.program_with(word)
        lowering = Lowering(self.plain.model, workload, stack("shardwright"), prices, program)
        lowered = lower_layer(lowering.layers[1], lowering.shape(1, own, None, batch, False))
        unit = lowering.unit((1,), own, self.ranks)
        assert unit.added_bytes >= 0
        for work in (lowered.forward, lowered.backward, unit.added):
            assert work.peak_bytes >= 0
            assert all(entry.technique in ("", self.name) for entry in work.entries)
        assert {added.technique for added in unit.added_update} <= {self.name}
        updates = [pricer.split(added.items) for added in unit.added_update]
        passes_s = sum(
            pricer.passes(ways).time_s
            for ways in ((lowered.forward,), (lowered.backward, unit.added))
        )
        return passes_s + sum(copies_s + wires_s for copies_s, wires_s in updates)

    def test_terms_add_up_and_name_it(self) -> None:
        named = 0
        for space in self.spaces():
            simulator, drawer = simulator_of(space), Drawer(space, random.Random(0), ALL_KINDS)
            for _ in range(PLANS):
                plan = drawer.draft().plan(space)
                simulation = simulator.run(plan)
                assert simulation is not None
                terms = breakdown(simulation)
                assert math.isclose(sum(terms.values()), simulation.step_time_s, rel_tol=1e-9)
                assert min(terms.values()) >= -1e-9 * simulation.step_time_s
                assert {*terms} <= {*BREAKDOWN_TERMS, *(v.name for v in self.known.values)}
                named += terms.get(self.name, 0.0) > 0
        assert (named > 0) == self.adds_work

    @property
    def adds_work(self) -> bool:
        """Whether its values stand in the breakdown."""
        hooks = self.price.layer, self.price.lowered_layer, self.price.unit
        return any(hook is not None for hook in hooks)

    def test_no_bound_is_above_a_random_plan(self) -> None:
        for space in self.spaces():
            found = check_bounds(space, PLANS, seed=0)
            assert found.faults == []
            assert found.plans == PLANS

    def test_the_planner_equals_the_brute_force(self) -> None:
        for number, space in enumerate(self.spaces()):
            answer = solved(space)
            capacity = random_cap(random.Random(f"{self.name} {number}"), answer, RULE)
            found = compare(number, space, answer, capacity)
            assert found.faults == []
            assert found.feasible > 0
