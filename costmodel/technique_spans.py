"""What a technique shows of a layer's pass: spans on lanes of its own, for timelines.

A timeline has a layer's seconds term by term. A technique that runs work beside other work may say
through ``TechniquePrice.spans`` when each piece of it runs; that changes no price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..spec.strategy import LayerStrategy
from .symbolic.lowered_pass import LoweredPass

if TYPE_CHECKING:
    from .pricing.pricer import Pricer
    from .technique import TechniquePrices


class PricedPass(NamedTuple):
    """A layer's passes in a row, and what prices them.

    ``sums_s``: seconds of waiting gradients that are summed beside its exchanges of rows.
    """

    strategy: LayerStrategy
    passes: tuple[LoweredPass, ...]
    pricer: Pricer
    sums_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpan:
    """A piece of a layer's pass on a lane of a technique.

    ``start_s`` counts from the layer's beginning. ``term`` is a term of the breakdown; traffic with
    an exposed one hides where the technique's other spans run.
    """

    lane: str
    name: str
    start_s: float
    duration_s: float
    term: str


LaneSpans = tuple[LaneSpan, ...]


def spans_of(prices: TechniquePrices, priced: PricedPass) -> LaneSpans:
    """Spans of all techniques of a layer's pass; none where none shows any."""
    return tuple(
        span for price in prices if price.spans is not None for span in price.spans(priced)
    )
