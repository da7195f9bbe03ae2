"""The three streams of experts' rows in chunks, as timelines show them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from generators.plan_cases import Case
from ranks.expert_runs import ExpertSizes, spread

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.costmodel.symbolic.lowered_pass import LoweredPass
from shardwright.costmodel.technique_spans import LaneSpans, PricedPass, spans_of
from shardwright.costmodel.techniques.expert_pipelining import INSIDE, NODES, PRODUCTS, RANKS
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.report.timeline import Timeline
from shardwright.spec.report.work_items import Kernel
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques import gradient_windows
from shardwright.spec.techniques.expert_pipelining import NAME, from_word

PLACES = [
    ("2/4", LayerStrategy(ep=8)),
    ("4/1", LayerStrategy(ep=4, etp=2)),
    ("4/8:hierarchical@2", LayerStrategy(ep=8)),
    ("8/2:hierarchical@4", LayerStrategy(ep=8, recompute="full")),
]
INNER = ("gather", "scatter")


def shown(
    word: str, strategy: LayerStrategy, slowdown: float, sums_s: float = 0.0
) -> list[tuple[LoweredPass, LaneSpans, Pricer]]:
    """Both passes of a block of Mixtral, and their spans."""
    problem = resolve(
        Inputs(model="mixtral-8x7b", cluster="8x2xH100-80GB", global_batch=16, seq_len=1024)
    )
    software: StackSpec = replace(problem.stack, overlap_slowdown=slowdown)
    pricer = Pricer(problem.machine, software)
    lowering = Lowering(problem.model, problem.workload, software, problem.techniques.prices, {})
    own = with_value(strategy, NAME, from_word(word))
    lowered = lowering.layer(1, own, None, 16, 16)
    return [
        (way, spans_of(lowered.shape.prices, PricedPass(own, (way,), pricer, sums_s)), pricer)
        for way in (lowered.forward, lowered.backward)
    ]


def stage_seconds(way: LoweredPass, pricer: Pricer) -> dict[str, float]:
    """Undisturbed seconds of the chunks' work by stage."""
    found: dict[str, float] = defaultdict(float)
    for entry in way.entries:
        if entry.overlap is not None:
            is_kernel = isinstance(entry.work, Kernel)
            price = pricer.kernel if is_kernel else pricer.collective
            found[entry.overlap.stage] += price(entry.work).time_s  # type: ignore[operator]
    return found


@pytest.mark.parametrize(("word", "strategy"), PLACES, ids=lambda value: str(value)[:24])
def test_spans_add_up_to_the_durations_of_the_price(word: str, strategy: LayerStrategy) -> None:
    for way, spans, pricer in shown(word, strategy, slowdown=1.0):
        lanes: dict[str, float] = defaultdict(float)
        for span in spans:
            lanes[span.lane] += span.duration_s
        priced = stage_seconds(way, pricer)
        outer, own = (NODES if "hierarchical" in word else RANKS), {*lanes}
        assert own == {outer, PRODUCTS} | ({INSIDE} if lanes[INSIDE] else set())
        exchanges_s = sum(s for stage, s in priced.items() if stage not in ("experts", "weights"))
        assert lanes[outer] + lanes[INSIDE] == pytest.approx(exchanges_s, rel=1e-9)
        assert lanes[PRODUCTS] == pytest.approx(priced["experts"] + priced["weights"], rel=1e-9)
        if lanes[INSIDE]:
            inner_s = sum(priced[stage] for stage in INNER)
            assert lanes[INSIDE] == pytest.approx(inner_s, rel=1e-9)


@pytest.mark.parametrize("slowdown", [1.0, 1.2])
@pytest.mark.parametrize(("word", "strategy"), PLACES[:3], ids=lambda value: str(value)[:24])
def test_the_last_end_is_the_priced_time(
    word: str, strategy: LayerStrategy, slowdown: float
) -> None:
    """Work before, the streams and work after are the layer's seconds."""
    for way, spans, pricer in shown(word, strategy, slowdown):
        before_s = within_s = after_s = 0.0
        for entry, item in zip(way.entries, pricer.exposed_items(way), strict=True):
            if entry.overlap is not None:
                within_s += item[2]
            elif within_s:
                after_s += item[2]
            else:
                before_s += item[2]
        starts_s = min(span.start_s for span in spans)
        ends_s = max(span.start_s + span.duration_s for span in spans)
        assert starts_s == pytest.approx(before_s, rel=1e-9)
        assert ends_s == pytest.approx(before_s + within_s, rel=1e-9)
        cost = pricer.layer_pass(way)
        assert ends_s + after_s == pytest.approx(cost.priced_s, rel=1e-9)


def test_sums_in_a_window_are_on_the_outer_stream() -> None:
    sums_s = 5e-3
    word, strategy = PLACES[0]
    (_, _, _), (way, spans, pricer) = shown(word, strategy, 1.0, sums_s)
    (own,) = (span for span in spans if span.name == "sums")
    assert (own.lane, own.duration_s) == (RANKS, pytest.approx(sums_s))
    plain = shown(word, strategy, 1.0)[1][1]
    ends = [max(s.start_s + s.duration_s for s in found) for found in (spans, plain)]
    assert ends[0] - ends[1] == pytest.approx(pricer.window_s(way, sums_s), rel=1e-6)


def timeline(word: str, **program: str) -> tuple[float, Timeline]:
    sizes = ExpertSizes(blocks=2, hidden=64, vocab=256, moe=Moe(experts=4, topk=2, ffn=96))
    case = spread(Case(name="", sizes=sizes, ranks=2, micro_batch=2), LayerStrategy(ep=2), "zero1")
    strategies = [
        with_value(s, NAME, from_word(word)) if s.ep > 1 else s for s in case.layer_strategies()
    ]
    values = tuple((name, gradient_windows.from_word(text)) for name, text in program.items())
    plan = replace(case, strategies=strategies, program=values).plan()
    problem = resolve(Inputs(model=sizes.model(), cluster="local:2", global_batch=4, seq_len=64))
    simulator = Simulator.for_plan(plan, problem.machine, stack("shardwright"))
    simulation = simulator.run(plan)
    assert simulation is not None
    return simulation.step_time_s, simulated_timeline(simulation, simulator)


@pytest.mark.parametrize("program", [{}, {gradient_windows.NAME: "fill"}], ids=["alone", "windows"])
def test_a_timeline_has_the_streams_of_both_directions(program: dict[str, str]) -> None:
    step_s, found = timeline("2/4", **program)
    own = [span for span in found.spans if span.stream.kind == "technique"]
    assert {span.stream.name for span in own} == {RANKS, PRODUCTS}
    products = [span.name for span in own if "products" in span.name and " mb 0" in span.name]
    assert len(products) == 2 * (2 + 4)
    assert any("sums" in span.name for span in own) == bool(program)
    assert found.overlapping() == []
    assert found.step_time_s == pytest.approx(step_s, rel=1e-9)
    assert {span.name.split()[2] for span in own} == {"F", "B"}
