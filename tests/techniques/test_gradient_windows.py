"""gradient_windows is held to what every technique of a program is, and to its line of sums."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import pytest
from generators.plan_cases import Case
from oracles.brute_force import Restriction, Space
from published.planning import planned
from ranks.expert_runs import ExpertSizes, spread
from toys.programs.program_suite import ProgramSuite, RefusedProgram
from toys.technique_spaces import small_space

from shardwright.api.problem.pins import resolve_pins
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.lowering.waiting_sums import placed_sums
from shardwright.costmodel.pricing.expert_streams import ChunkSeconds, PricedChunks
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.planner.technique import KnownTechniques
from shardwright.planner.techniques import SHIPPED
from shardwright.planner.techniques.gradient_windows import BackwardLayer, filled_windows
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.plan.plan import Plan, load_plan
from shardwright.spec.report.work_items import Collective
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques import expert_pipelining
from shardwright.spec.techniques.gradient_windows import (
    NAME,
    GradientWindows,
    LayerWindows,
    from_word,
    word_of,
)

SIZES = ExpertSizes(blocks=2, hidden=64, vocab=256, moe=Moe(experts=4, topk=2, ffn=96))
DEEP = ExpertSizes(
    blocks=6, hidden=1024, vocab=256_000, moe=Moe(experts=8, topk=2, ffn=4096), dense=1
)
WIDE = ExpertSizes(blocks=2, hidden=256, vocab=512, moe=Moe(experts=4, topk=2, ffn=512))
CHUNKS = expert_pipelining.from_word("2/4")
EP2 = LayerStrategy(ep=2)
FEW = tuple(
    Restriction(axis=axis, allowed=allowed)
    for axis, allowed in (
        ("recompute", ("none",)),
        ("cp", (1,)),
        ("tp", (1,)),
        ("ep", (2,)),
        ("etp", (1,)),
        ("shard", ("zero0", "zero1")),
        ("schedule", ("1f1b",)),
        ("micro_batch", (1,)),
    )
)


def case(word: str, strategy: LayerStrategy = EP2, shard: str = "zero1", **fields: Any) -> Case:
    """A plan with a word, whose experts are in chunks where ``strategy`` has several ranks."""
    shaped = Case(name=word, sizes=fields.pop("sizes", SIZES), ranks=2, **fields)
    found = spread(shaped, strategy, shard)
    strategies = [
        with_value(s, expert_pipelining.NAME, CHUNKS) if s.ep > 1 else s
        for s in found.layer_strategies()
    ]
    value = from_word(word)
    program = () if value is None else ((NAME, value),)
    return replace(found, strategies=strategies, program=program)


class TestGradientWindows(ProgramSuite):
    known = SHIPPED
    name = NAME
    base, ranks, sizes = with_value(EP2, expert_pipelining.NAME, CHUNKS), 2, SIZES
    pinned = ("ep=2", "recompute=none", "micro_batch=1", "shard=zero1", "expert_pipelining=2/4")
    refused_programs = (
        RefusedProgram(word="fill", because="needs experts"),
        RefusedProgram(word="fill", because="zero3", case=case("none", shard="zero3")),
        RefusedProgram(
            word="fill", because="bf16", case=case("none", dtype="bf16", communication="bf16")
        ),
        RefusedProgram(
            word="fill",
            because="expert_pipelining in every block",
            case=spread(Case(name="in line", sizes=SIZES, ranks=2), EP2),
        ),
        RefusedProgram(word="fill/4:0B/2:0B", because="in order", case=case("none")),
    )

    def plain_spaces(self) -> list[Space]:
        return [small_space(SHIPPED, expert_pipelining.NAME, ("2/2", "1/4"), *FEW, sizes=WIDE)]

    @cached_property
    def plain(self) -> Plan:
        return case("none", micro_batch=4).plan()

    def plan_with(self, word: str) -> Plan:
        return case(word, micro_batch=4).plan()

    def check_pinned(self, plan: Plan, word: str) -> None:
        assert self.words_in(plan) == {word}

    def with_word(self, plan: Plan, word: str) -> Plan:
        program = replace(plan.program, techniques={NAME: from_word(word)})
        return replace(plan, programs=(program,))

    @property
    def absent(self) -> KnownTechniques:
        """The techniques that are shipped but for this one."""
        return replace(
            self.known,
            values=tuple(v for v in self.known.values if v.name != NAME),
            prices=tuple(p for p in self.known.prices if p.name != NAME),
            choices=tuple(c for c in self.known.choices if c.name != NAME),
        )

    def test_what_lacks_a_role_is_refused_in_one_line(self) -> None:
        plan, absent = self.plan_with("fill"), self.absent
        assert plan.check(self.known.values) == []
        (broken,) = {str(violation) for violation in plan.check(absent.values)}
        assert f"technique '{NAME}' is not built yet" in broken
        machine, software = Machine(plan.cluster), stack("shardwright")
        with pytest.raises(InputError, match=f"techniques.{NAME}: got no price"):
            Simulator.for_plan(plan, machine, software, absent.prices).run(plan)
        asked = replace(self.problem(), techniques=absent)
        with pytest.raises(InputError, match=f"got {NAME}"):
            resolve_pins((f"{NAME}=fill",), asked)

    def test_off_costs_nothing(self) -> None:
        absent = self.absent
        text = canonical_json(self.plain.to_document())
        assert NAME not in text
        assert load_plan(text, "plan", absent.values).hash == self.plain.hash
        for space in self.plain_spaces():
            without, off = (planned(replace(space, techniques=k)) for k in (absent, self.known))
            assert without is not None
            assert off is not None
            assert off.outcomes[0].plan.hash == without.outcomes[0].plan.hash
            assert off.outcomes[0].step_time_s == without.outcomes[0].step_time_s
            assert (off.lower_bound_s, off.simulated) == (without.lower_bound_s, without.simulated)


def test_words_are_their_values() -> None:
    windows = (LayerWindows(first=1, last=1, most_bytes=0), LayerWindows(first=3, last=9))
    value = GradientWindows(most_bytes=2**20, layers=windows)
    assert from_word("1MiB/1:0B/3-9:fill") == value
    assert word_of(value) == "1MiB/1:0B/3-9:fill"
    assert [value.limit(layer) for layer in (0, 1, 2)] == [2**20, 0, 2**20]
    for word in ("", "all", "1MB", "-1B", "1MiB/", "1MiB/3", "1MiB/3:", "1MiB/3-0:1B", "01B"):
        assert from_word(word) is None


@pytest.mark.parametrize("shard", ["zero0", "zero1"])
@pytest.mark.parametrize("word", ["fill", "7KiB", "0B", "3KiB/2:fill"])
def test_every_gradient_is_summed_once(shard: str, word: str) -> None:
    """Pieces of a window are within its bytes, and together the sums of the plan without it."""
    on, off = (case(w, shard=shard, sizes=WIDE).plan() for w in (word, "none"))
    chunks = []
    for plan in (on, off):
        values = plan.program.techniques
        lowering = Lowering(plan.model, plan.workload, stack("shardwright"), program=values)
        chunks += lowering.stage(plan, 0)
    sums = placed_sums(chunks[0])
    value = from_word(word)
    assert value is not None
    summed = 0
    for entry, at in zip(chunks[0].layers, sums, strict=True):
        beside = _payload(at.beside)
        assert beside <= value.limit(entry.index)
        assert beside == 0 or entry.window_bytes is not None
        summed += beside + _payload(at.after)
    plain = (e.unit.reduce.fresh for e in chunks[1].layers if e.unit is not None)
    assert summed == sum(map(_payload, plain)) > 0
    assert sums[0].held_bytes == 0


def _payload(items: Any) -> int:
    return sum(item.payload_bytes for item in items if isinstance(item, Collective))


def test_windows_are_filled_as_by_trying_all() -> None:
    source = random.Random(3)
    for _ in range(60):
        layers, waiting = [], 0
        for number in range(4):
            own = tuple(sorted(source.uniform(0, 2) for _ in range(8)))
            ends = number == 3 or source.random() < 0.2
            outside = tuple(n * 0.5 for n in range(8)) if ends else ()
            joins = source.randint(0, 2) if waiting < 6 else 0
            window = (0.0, *own[1:]) if source.random() < 0.7 else ()
            layers.append(BackwardLayer(window, joins, outside))
            waiting = 0 if outside else waiting + joins
        found_s, taken = filled_windows(layers)
        every = product(*(range(8 if layer.window_s else 1) for layer in layers))
        seconds = [s for one in every if (s := _filled_s(layers, one)) is not None]
        assert found_s == pytest.approx(min(seconds))
        assert _filled_s(layers, taken) == pytest.approx(found_s)


def _filled_s(layers: list[BackwardLayer], taken: tuple[int, ...]) -> float | None:
    """Seconds of sums with these grains in the windows; None: a window takes what does not wait."""
    waiting, seconds = 0, 0.0
    for layer, grains in zip(layers, taken, strict=True):
        if grains > waiting:
            return None
        seconds += layer.window_s[grains] if layer.window_s else 0.0
        waiting += layer.joins - grains
        if layer.outside_s:
            seconds, waiting = seconds + layer.outside_s[waiting], 0
    return seconds


def test_bytes_of_windows_are_chosen_on_the_plan_that_was_found() -> None:
    asked = resolve(
        Inputs(
            model=DEEP.model(),
            cluster="8x1xRTX-A6000-48GB",
            global_batch=8,
            seq_len=8192,
            overlap="none",
        )
    )
    fixed = ("ep=8", "tp=1", "cp=1", "pp=1", "recompute=none", "micro_batch=1", "shard=zero1")
    fixed += ("expert_pipelining=2/2",)
    found = {}
    for word in ("none", "fill", "auto"):
        pins = resolve_pins((*fixed, f"{NAME}={word}"), asked)
        found[word] = solve(asked, SolveOptions(pins=pins))
    times = [found[word].prediction.step_time_s for word in ("auto", "fill", "none")]
    assert times == sorted({*times})
    assert found["auto"].search.lower_bound_s <= found["auto"].prediction.step_time_s
    value = found["auto"].plan.program.techniques[NAME]
    assert isinstance(value, GradientWindows)
    assert value.layers
    assert found["auto"].plan.check() == []
    with pytest.raises(InputError, match="expert_pipelining"):
        resolve_pins(("expert_pipelining=auto",), asked)


def simulated(word: str) -> Simulation:
    """A step of two ranks whose cores sum gradients in line, unless windows take them."""
    plan = case(word, sizes=WIDE, seq_len=64).plan()
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))
    simulation = simulator.run(plan)
    assert simulation is not None
    return simulation


def test_windows_hide_what_was_exposed() -> None:
    off, empty, full = (simulated(word) for word in ("none", "0B", "fill"))
    assert full.step_time_s < off.step_time_s
    assert empty.step_time_s == pytest.approx(off.step_time_s, rel=1e-9)
    assert NAME not in empty.stages[0].technique_s()
    held = [one.memory[0].allocated_bytes for one in (off, full)]
    assert held[0] <= held[1]


def test_more_in_a_window_never_takes_less() -> None:
    source = random.Random(7)
    for _ in range(200):
        each = ChunkSeconds(*(source.uniform(0, 3) for _ in range(6)))
        chunks = PricedChunks(source.choice((1, 2, 4, 8)), each, source.uniform(1, 1.5))
        windows = sorted(source.uniform(0, 30) for _ in range(6))
        seconds = [chunks.exposed_s(window) for window in (0.0, *windows)]
        assert all(a <= b + 1e-12 for a, b in pairwise(seconds))
