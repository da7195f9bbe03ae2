"""The price of experts' rows in chunks equals the events of its three streams."""

from __future__ import annotations

import random

from oracles.expert_streams import simulated_s

from shardwright.costmodel.pricing.expert_events import chunk_events
from shardwright.costmodel.pricing.expert_streams import ChunkSeconds, ExpertStreams, pipelined_s

LAYERS = 2000
CHUNKS = (1, 2, 4, 8)


def drawn(source: random.Random) -> ChunkSeconds:
    """Stages of any lengths, some of them absent."""
    scale = [10 ** source.uniform(-2, 1) for _ in range(6)]
    return ChunkSeconds(*(s * source.random() * (source.random() > 0.2) for s in scale))


def test_the_expression_is_the_event_simulation() -> None:
    source = random.Random(0)
    for _ in range(LAYERS):
        each, chunks = drawn(source), source.choice(CHUNKS)
        window_s = source.choice((0.0, source.uniform(0, 20)))
        expected = simulated_s(chunks, each, window_s)
        assert abs(pipelined_s(chunks, each, window_s) - expected) <= 1e-9 * max(1.0, expected)


def test_events_are_those_of_the_oracle_and_end_with_the_expression() -> None:
    source = random.Random(4)
    for _ in range(LAYERS):
        each, chunks = drawn(source), source.choice(CHUNKS)
        window_s = source.choice((0.0, source.uniform(0, 20)))
        events = chunk_events(chunks, each, window_s)
        ends_s: dict[str, float] = {}
        total_s: dict[str, float] = {}
        for stream, stage, _, start_s, end_s in events:
            assert start_s >= ends_s.get(stream, 0.0)
            ends_s[stream] = end_s
            total_s[stage] = total_s.get(stage, 0.0) + end_s - start_s
        expected = simulated_s(chunks, each, window_s)
        last_s = max(ends_s.values(), default=0.0)
        for whole_s in (expected, pipelined_s(chunks, each, window_s)):
            assert abs(last_s - whole_s) <= 1e-9 * max(1.0, whole_s)
        for stage, seconds in total_s.items():
            own_s = window_s if stage == "window" else chunks * getattr(each, stage)
            assert abs(seconds - own_s) <= 1e-9 * max(1.0, expected)


def test_no_duration_that_grows_makes_it_shorter() -> None:
    source = random.Random(1)
    for _ in range(LAYERS):
        each, chunks, window_s = drawn(source), source.choice(CHUNKS), source.random()
        before = pipelined_s(chunks, each, window_s)
        longer = each._replace(**{source.choice(each._fields): source.uniform(10, 20)})
        assert pipelined_s(chunks, longer, window_s) >= before
        assert pipelined_s(chunks, each, window_s + source.random()) >= before


def test_it_is_the_three_terms_where_weights_go_with_the_products() -> None:
    source = random.Random(2)
    for _ in range(LAYERS):
        a, g, e, s, gar = (source.random() for _ in range(5))
        r = source.choice(CHUNKS)
        each = ChunkSeconds(dispatch=a, gather=g, experts=e, scatter=s, combine=a)
        terms = (
            2 * a + g + e + s + (r - 1) * max(a, g, e, s),
            2 * a + g + s + (r - 1) * (max(a, g) + max(a, s)),
            2 * r * a + gar,
        )
        assert abs(pipelined_s(r, each, gar) - max(terms)) < 1e-12


def test_levels_that_share_a_link_take_turns() -> None:
    streams = ExpertStreams()
    for stage in ("dispatch", "gather", "scatter", "combine"):
        streams.add(stage, 4.0)
    streams.add("experts", 2.0)
    assert abs(streams.exposed_s(2, shares_link=True) - (16.0 + 0.0 - 2.0)) < 1e-12
    streams.add("experts", 2.0)
    assert streams.exposed_s(2, shares_link=True) == 0.0


def test_exchanges_that_hide_slow_the_products_beside_them() -> None:
    source = random.Random(3)
    for _ in range(LAYERS):
        each, chunks = drawn(source), source.choice(CHUNKS)
        figures = []
        for slowdown in (1.0, 1.2):
            streams = ExpertStreams()
            for stage in each._fields:
                streams.add(stage, chunks * getattr(each, stage))  # type: ignore[arg-type]
            figures.append(streams.exposed_s(chunks, False, slowdown))
        products_s = chunks * (each.experts + each.weights)
        assert 0 <= figures[1] - figures[0] <= 0.2 * products_s + 1e-12
