"""What a technique shows of a pass stands in timelines, on lanes of its own, and moves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.plan_cases import Case, Sizes
from toys.parking_price import PRICE
from toys.parking_value import TECHNIQUE

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.costmodel.technique import TechniquePrice
from shardwright.costmodel.technique_spans import LaneSpan, LaneSpans, PricedPass
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.report.timeline import Timeline, from_perfetto
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value

LANES = ("rows", "products")


def quarters(priced: PricedPass) -> LaneSpans:
    """Rows in the first half of a pass, products in its middle."""
    whole_s = priced.pricer.passes(priced.passes).time_s
    rows, products = LANES
    share = {"start_s": 0.0, "duration_s": whole_s / 2}
    return (
        LaneSpan(lane=rows, name="there", term="exposed_ep", **share),
        LaneSpan(lane=products, name="product", term="matmul", **{**share, "start_s": whole_s / 4}),
    )


def timeline_of(price: TechniquePrice, stages: int = 1) -> tuple[Simulation, Simulator, Timeline]:
    value = TECHNIQUE.from_word(TECHNIQUE.words[0])
    strategy = with_value(LayerStrategy(), TECHNIQUE.name, value)
    case = Case(name="", sizes=Sizes(blocks=2), ranks=stages, stages=stages, strategies=strategy)
    plan = replace(case, techniques=(TECHNIQUE,)).plan()
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"), (price,))
    simulation = simulator.run(plan)
    assert simulation is not None
    return simulation, simulator, simulated_timeline(simulation, simulator)


@pytest.mark.parametrize("stages", [1, 2])
def test_a_technique_s_spans_are_lanes_of_their_own(stages: int) -> None:
    plain, _, without = timeline_of(PRICE, stages)
    simulation, simulator, timeline = timeline_of(replace(PRICE, spans=quarters), stages)
    assert simulation.step_time_s == plain.step_time_s
    own = [span for span in timeline.spans if span.stream.kind == "technique"]
    assert {span.stream.name for span in own} == {*LANES}
    rest = [span for span in timeline.spans if span.stream.kind != "technique"]
    assert rest == [*without.spans]
    assert timeline.overlapping() == []
    assert timeline.step_time_s == pytest.approx(simulation.step_time_s, rel=1e-9)
    ends = [(timeline.spans[f.source], timeline.spans[f.target]) for f in timeline.flows]
    assert ends == [(without.spans[f.source], without.spans[f.target]) for f in without.flows]
    few = simulated_timeline(simulation, simulator, most_spans=len(without.spans))
    assert [*few.spans] == rest
    assert len(from_perfetto(timeline.to_perfetto(), "trace").spans) == len(timeline.spans)


def test_traffic_on_an_own_lane_hides_beside_the_technique_s_work() -> None:
    _, _, timeline = timeline_of(replace(PRICE, spans=quarters))
    shown: dict[str, float] = {}
    for span in timeline.spans:
        if span.stream.kind == "technique":
            shown[span.term] = shown.get(span.term, 0.0) + span.duration_s
    assert shown["exposed_ep"] == pytest.approx(shown["overlapped_ep"], rel=1e-9)
    assert shown["matmul"] == pytest.approx(shown["exposed_ep"] + shown["overlapped_ep"], rel=1e-9)
