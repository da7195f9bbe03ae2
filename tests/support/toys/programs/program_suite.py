"""Checks of every technique of a whole program without ranks; see ``toys.technique_suite``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from generators.plan_cases import PLAIN, Case
from oracles.brute_force import Space
from published.planning import planned
from toys.technique_suite import LONGEST_REASON, SIZES, TechniqueSuite

from shardwright.api.problem.lossy import allow_lossy
from shardwright.api.problem.pins import resolve_pins
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.planner.technique import KnownTechniques
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan, load_plan
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import OFF
from shardwright.spec.technique_values import with_value

EQUAL = 1e-9


@dataclass(frozen=True, kw_only=True)
class RefusedProgram:
    """A plan in which a word is not legal, and a part of the reason."""

    word: str
    because: str
    case: Case = field(default_factory=lambda: Case(name="refused", sizes=SIZES, ranks=1))


class ProgramSuite(TechniqueSuite):
    """The checks of one technique of a whole program.

    ``plain_spaces`` are small ones, which every word of ``tried`` is legal in.
    """

    refused = ()
    refused_programs: tuple[RefusedProgram, ...]

    @abstractmethod
    def plain_spaces(self) -> list[Space]: ...

    def spaces(self) -> list[Space]:
        """Each plain space with every word in turn."""
        return [
            replace(space, program=tuple(self.program_with(word).items()), techniques=self.known)
            for space in self.plain_spaces()
            for word in self.named
        ]

    def words_in(self, plan: Plan) -> set[str]:
        return {self.value.text_in_program(plan.program.techniques)}

    def strategy_with(self, word: str) -> LayerStrategy:
        return self.base

    def program_with(self, word: str) -> dict[str, Any]:
        return {} if word == OFF else {self.name: self.named[word]}

    @property
    def adds_work(self) -> bool:
        price = self.price.program
        assert price is not None
        return price.unit is not None or price.step is not None

    def with_word(self, plan: Plan, word: str) -> Plan:
        """A plan with a word for its program."""
        program = replace(plan.program, techniques=self.program_with(word))
        return replace(plan, programs=(program,))

    def plan_with(self, word: str) -> Plan:
        plan = Case(name=word, sizes=SIZES, ranks=self.ranks, micro_batch=4).plan()
        return self.with_word(plan, word)

    def check_pinned(self, plan: Plan, word: str) -> None:
        assert self.words_in(plan) == {word}
        assert not any(strategy.techniques for strategy in plan.layer_strategies())

    def test_off_costs_nothing(self) -> None:
        absent = KnownTechniques(values=(), prices=(), choices=())
        text = canonical_json(self.plain.to_document())
        assert "techniques" not in text
        assert load_plan(text, "plan", self.known.values).hash == self.plain.hash
        for space in self.plain_spaces():
            without, off = (planned(replace(space, techniques=k)) for k in (absent, self.known))
            assert without is not None
            assert off is not None
            assert off.outcomes[0].plan.hash == without.outcomes[0].plan.hash
            assert off.outcomes[0].step_time_s == without.outcomes[0].step_time_s
            assert (off.lower_bound_s, off.simulated) == (without.lower_bound_s, without.simulated)
        asked = self.problem()
        unchosen = replace(self.known, choices=())
        both = [solve(replace(asked, techniques=k)) for k in (absent, unchosen)]
        assert both[0].plan.hash == both[1].plan.hash
        assert both[0].search.candidates == both[1].search.candidates

    def test_reasons_are_one_line(self) -> None:
        for place in self.refused_programs:
            plan = self.with_word(place.case.plan(), place.word)
            reasons = [str(violation) for violation in plan.check(self.known.values)]
            assert any(place.because in reason for reason in reasons), (place, reasons)
            assert all("\n" not in reason and len(reason) < LONGEST_REASON for reason in reasons)

    def test_scopes_are_kept_apart(self) -> None:
        word = next(iter(self.named))
        on_layers = with_value(PLAIN, self.name, self.named[word])
        case = Case(name="layers", sizes=SIZES, ranks=1)
        plan = replace(case, strategies=PLAIN).plan()
        stage = plan.program.stages[0]
        parts = tuple(replace(part, strategy=on_layers) for part in stage.virtual_stages[0])
        stages = (replace(stage, virtual_stages=(parts,)),)
        misplaced = replace(plan, programs=(replace(plan.program, stages=stages),))
        reasons = [v.message for v in misplaced.check(self.known.values)]
        assert f"{self.name} belongs to a whole program, not to layers" in reasons
        with pytest.raises(InputError, match="without @LAYERS"):
            resolve_pins((f"{self.name}@1-2={word}",), self.problem())

    def test_the_axis_takes_the_best_value(self) -> None:
        """The search over all values ends with the best of the searches with each alone."""
        known = self.known
        if any(self.value.lossy(value) for value in self.named.values()):
            known = allow_lossy(known, self.name)
        asked = replace(self.problem(), techniques=known)
        words = [OFF, *self.named]
        alone = {}
        for word in words:
            pins = resolve_pins((*self.pinned, f"{self.name}={word}"), asked)
            alone[word] = solve(asked, SolveOptions(pins=pins))
        together = solve(asked, SolveOptions(pins=resolve_pins(self.pinned, asked)))
        tried = {*together.search.space[self.name]}
        best = min(one.objective_value for word, one in alone.items() if word in tried)
        assert together.objective_value == pytest.approx(best, rel=EQUAL)
        bounds = (alone[word].search.lower_bound_s for word in tried)
        assert together.search.lower_bound_s >= min(bounds) * (1 - EQUAL)
        assert together.search.lower_bound_s <= together.prediction.step_time_s * (1 + EQUAL)
        searched = sum(alone[word].search.candidates for word in tried)
        assert together.search.candidates <= searched
