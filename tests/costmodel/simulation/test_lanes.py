"""Work on lanes: beside layers, in order, never faster for more of it."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.brute_force import simulator_of
from toys.lane_spaces import LANE_CLUSTERS, OFFLOADED, PARKED, lane_plans, lane_space
from toys.parking_price import BUFFERS

from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.pricing.costs import TERMS, PassCost
from shardwright.costmodel.simulation.both_ways import with_both_ways
from shardwright.costmodel.simulation.event_simulation import simulate_events
from shardwright.costmodel.simulation.lane_clocks import LaneClocks, placed_chains
from shardwright.costmodel.simulation.layer_slots import LaneSlot, LayerSlot
from shardwright.costmodel.simulation.pass_time import lanes_time
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.costmodel.symbolic.lane_work import LANES, Begins, Lane
from shardwright.spec.techniques.cpu_offload import CpuOffload

SLOWDOWN = 1.25
KINDS: tuple[Begins, ...] = ("gather", "before", "with", "after", "reduced")
SECONDS = st.floats(0, 8).map(lambda x: round(x, 2))
LANE_SLOTS = st.builds(
    LaneSlot,
    technique=st.sampled_from(["one", "other"]),
    lane=st.sampled_from([*LANES, "wire"]),
    seconds=SECONDS,
    begins=st.sampled_from(KINDS),
    lag=st.integers(0, 3),
)


def compute(seconds: float) -> PassCost:
    terms = tuple(seconds if name == "matmul" else 0.0 for name in TERMS)
    return PassCost(seconds, terms, seconds, 0.0)


def slot(
    work_s: float, *lanes: LaneSlot, gather_s: float = 0.0, reduce_s: float = 0.0
) -> LayerSlot:
    plain = LayerSlot(compute(work_s), 0.0, gather_s, reduce_s, lanes=lanes)
    return plain._replace(hides_gather=True, hides_reduction=True)


def copy(lane: Lane, seconds: float, begins: Begins, lag: int = 0) -> LaneSlot:
    return LaneSlot("parking", lane, seconds, begins, lag)


SLOTS = st.builds(
    lambda work_s, exchange_s, gather_s, reduce_s, lanes: slot(
        work_s, *lanes, gather_s=gather_s, reduce_s=reduce_s
    )._replace(exchange_s=exchange_s),
    SECONDS,
    SECONDS,
    SECONDS,
    SECONDS,
    st.lists(LANE_SLOTS, max_size=3),
)


def test_a_copy_that_fits_beside_its_layers_costs_nothing() -> None:
    layers = [slot(2.0, copy("to_host", 1.5, "after", BUFFERS)) for _ in range(4)]
    time = lanes_time([*layers, slot(2.0)], 1.0)
    assert time.time_s == 10.0
    assert time.technique_s == {"parking": 0.0}


def test_a_longer_copy_holds_up_the_layer_that_needs_its_buffer() -> None:
    """Copies of 3 s on a lane end at 5, 8, 11, 14; a layer of 2 s waits for the one two before."""
    layers = [slot(2.0, copy("to_host", 3.0, "after", BUFFERS)) for _ in range(4)]
    time = lanes_time(layers, 1.0)
    assert time.time_s == 14.0
    assert time.tail_s == 14.0 - 10.0  # the fourth layer begins at 8
    assert time.technique_s == {"parking": 14.0 - 8.0}


def test_a_layer_waits_for_what_comes_before_it() -> None:
    """The first layer's copy has nothing to hide behind, the others' the layer before."""
    layers = [slot(2.0, copy("to_device", 1.0, "before")) for _ in range(3)]
    assert lanes_time(layers, 1.0).time_s == 1.0 + 3 * 2.0


def test_a_gather_waits_for_what_comes_before_it() -> None:
    """Copy and gather follow each other: 3 s beside each layer of 4, and before the first."""
    layers = [slot(4.0, copy("to_device", 1.0, "gather"), gather_s=2.0) for _ in range(3)]
    assert lanes_time(layers, 1.0).time_s == 3.0 + 3 * 4.0
    short = [slot(2.0, copy("to_device", 1.0, "gather"), gather_s=2.0) for _ in range(3)]
    assert lanes_time(short, 1.0).time_s == 3.0 + 2 * 3.0 + 2.0


def test_lanes_run_beside_each_other_and_the_wire_beside_none_of_its_own() -> None:
    both = slot(4.0, copy("to_host", 3.0, "with"), copy("to_device", 3.0, "with"))
    assert lanes_time([both], 1.0).time_s == 4.0
    wire = slot(4.0, copy("wire", 3.0, "with"), reduce_s=2.0)
    alone = slot(4.0, reduce_s=2.0)
    assert lanes_time([alone], 1.0).time_s == lanes_time([wire], 1.0).time_s == 6.0
    late = slot(4.0, copy("wire", 5.0, "with"), reduce_s=2.0)
    assert lanes_time([late], 1.0).time_s == 7.0


def test_exchanges_and_sharding_traffic_take_turns() -> None:
    """A gather of 2 s follows the exchange of 3 s beside a layer of 4, and ends at 2 + 3 + 2."""
    plain = [slot(4.0, gather_s=2.0) for _ in range(2)]
    both = [layer._replace(exchange_s=3.0) for layer in plain]
    assert lanes_time(plain, 1.0).time_s == 2.0 + 4.0 + 4.0
    assert lanes_time(both, 1.0).time_s == 7.0 + 4.0


def test_work_beside_lanes_is_slower_by_the_stacks_factor() -> None:
    layer = slot(4.0, copy("to_host", 2.0, "with"))
    assert lanes_time([layer], SLOWDOWN).time_s == 4.0 + 0.25 * 2.0


@given(st.lists(SLOTS, min_size=1, max_size=5), st.data())
@settings(max_examples=200)
def test_no_pass_is_shorter_for_more_work(layers: list[LayerSlot], data: st.DataObject) -> None:
    both_ways = data.draw(st.sampled_from([1.0, 1.5]))
    before = lanes_time(with_both_ways(layers, both_ways), SLOWDOWN)
    assert sum(before.terms_s) == pytest.approx(before.time_s)
    assert min(before.terms_s) >= -1e-12
    number = data.draw(st.integers(0, len(layers) - 1))
    changed, more = layers[number], data.draw(SECONDS)
    which = data.draw(st.sampled_from(["work", "exchange", "gather", "reduce", "lane"]))
    if which == "work":
        changed = changed._replace(cost=compute(changed.cost.time_s + more))
    elif which == "gather":
        changed = changed._replace(gather_s=changed.gather_s + more)
    elif which == "exchange":
        changed = changed._replace(exchange_s=changed.exchange_s + more)
    elif which == "reduce":
        changed = changed._replace(reduce_s=changed.reduce_s + more)
    elif changed.lanes:
        first, *others = changed.lanes
        longer = first._replace(seconds=first.seconds + more)
        changed = changed._replace(lanes=(longer, *others))
    layers = [*layers[:number], changed, *layers[number + 1 :]]
    after = lanes_time(with_both_ways(layers, both_ways), SLOWDOWN)
    assert after.time_s >= before.time_s - 1e-9


@given(st.lists(SLOTS, min_size=1, max_size=5))
@settings(max_examples=100)
def test_a_lane_is_in_order_and_alone(layers: list[LayerSlot]) -> None:
    lanes = LaneClocks([layer.lanes for layer in layers], SLOWDOWN)
    for number in range(len(layers)):
        for begins in KINDS:
            lanes.issue(number, begins, float(number), 1.0)
    by_lane: dict[str, float] = {}
    for placed in lanes.placed:
        assert placed.start_s >= by_lane.get(placed.work.lane, 0.0)
        by_lane[placed.work.lane] = placed.start_s + placed.seconds


def test_chains_of_an_update_are_a_flow_shop() -> None:
    """Two units of 4 s on the host and 3 s up: 4, 8 on one lane; 7, 11 on the other."""
    chain: list[tuple[str, Lane, float]] = [("one", "host", 4.0), ("one", "to_device", 3.0)]
    ends = [work.start_s + work.seconds for work in placed_chains([chain, chain])]
    assert ends == [4.0, 7.0, 8.0, 11.0]
    assert placed_chains([]) == ()


def test_copies_both_ways_beside_a_layer_slow_one_another() -> None:
    """Of 2 s down and 3 s up beside the middle layer each takes 1 s more; alone none does."""
    down, up = copy("to_host", 2.0, "reduced"), copy("to_device", 3.0, "before")
    layers = [slot(1.0, down), slot(1.0), slot(1.0, up)]
    found = with_both_ways(layers, 1.5)
    assert [work.seconds for layer in found for work in layer.lanes] == [3.0, 4.0]
    assert with_both_ways(layers, 1.0) is layers
    apart = [slot(1.0, up), slot(1.0), slot(1.0, down), slot(1.0, copy("drive_read", 5.0, "with"))]
    assert with_both_ways(apart, 1.5) == apart


def test_copies_both_ways_beside_an_update_slow_one_another() -> None:
    """Down 0 to 2 and 2 to 4, up 2 to 4 and 4 to 6: 2 s at once are 1 s more each way."""
    chain: list[tuple[str, Lane, float]] = [("one", "to_host", 2.0), ("one", "to_device", 2.0)]
    ends = [work.start_s + work.seconds for work in placed_chains([chain, chain], 1.5)]
    assert ends == [2.5, 5.0, 5.0, 7.5]
    assert placed_chains([chain], 1.5) == placed_chains([chain])


@pytest.mark.parametrize("cluster", LANE_CLUSTERS)
def test_events_take_as_long_as_passes(cluster: str) -> None:
    simulator = simulator_of(lane_space(cluster))
    shown = {PARKED: 0.0, OFFLOADED: 0.0}
    for plan in islice(lane_plans(0, cluster), 7):
        wanted = simulator.run(plan)
        assert wanted is not None
        found, spans = simulate_events(simulator, plan)
        assert spans.overlap_s() <= 1e-9 * wanted.step_time_s
        assert found.step_time_s == pytest.approx(wanted.step_time_s, rel=1e-9)
        terms = breakdown(wanted)
        assert sum(terms.values()) == pytest.approx(wanted.step_time_s)
        for name in shown:
            shown[name] += terms.get(name, 0.0)
    assert min(shown.values()) > 0


def test_a_timeline_draws_each_lane() -> None:
    simulator = simulator_of(lane_space())
    plan = next(
        p for p in lane_plans(1) if any(PARKED in s.techniques for s in p.layer_strategies())
    )
    simulation = simulator.run(plan)
    assert simulation is not None
    timeline = simulated_timeline(simulation, simulator)
    assert timeline.overlapping() == []
    streams = {(span.stream.kind, span.stream.name) for span in timeline.spans}
    assert {("host_copy", "to_host"), ("host_copy", "to_device")} <= streams
    terms = {span.term for span in timeline.spans if span.stream.kind == "host_copy"}
    assert terms <= {n for name in (PARKED, OFFLOADED) for n in (name, f"overlapped_{name}")}


def test_a_timeline_draws_lanes_beside_the_update() -> None:
    """The host's work and the weights' way back, up to the end of the longest stage's update."""
    simulator = simulator_of(lane_space())
    plan = next(
        p
        for p in lane_plans(2)
        if any(s.techniques.get(OFFLOADED) == CpuOffload() for s in p.layer_strategies())
    )
    simulation = simulator.run(plan)
    assert simulation is not None
    spans = simulated_timeline(simulation, simulator).spans
    lanes = [span for span in spans if span.name == f"update {OFFLOADED}"]
    assert {"host", "to_device"} <= {span.stream.name for span in lanes}
    assert {span.term for span in lanes} <= {OFFLOADED, f"overlapped_{OFFLOADED}"}
    ends = [simulation.barrier_s + run.update_s for run in simulation.stages if run.update_beside_s]
    assert max(span.end_s for span in lanes) == pytest.approx(max(ends))
