"""Lower bounds and estimates of pipelines from chains of passes.

Every pass of a chain takes at least a sum over its layers (:mod:`.pass_table`), so with fixed cuts
the shortest that a chain can be is found layer by layer, and no plan with these cuts is faster.
What the chain's own stage may hold counts by a price λ of bytes: any λ ≥ 0 gives a bound,
``Σ min(seconds + λ bytes) - λ budget`` (weak duality).

The same sums with one option for all blocks say how long a uniform plan takes, up to what shows
of messages and of the end of the step. The critical path of the best uniform plan is one more
chain, and the one that counts most where backwards are split or passes overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costmodel.pass_pairs import MOST_SLOWDOWN
from ..spec.schedule import SPLIT_KINDS
from .chain_weights import chain_weights, weighed
from .chains import Chain, chains, mixed
from .critical import critical_chains
from .cut_pipeline import Choice, CutPipeline, Place, Seat
from .pass_table import WORK, PassTable
from .priced_bytes import Rows, best_price, least_within
from .reference_plan import Reference, by_kind
from .shape import Shape

Floats = NDArray[np.float64]
MOST_PASSES = 60_000
"""Pipelines of more passes are bounded by the closed chains alone."""
PLAYS, ASCENTS, CLOSE = 2, 1, 0.002
"""Critical paths of uniform plans, and of others, that are followed until the bound is close."""
ROUNDING = 1e-9
MessageSeconds = Callable[[Shape, int, int, float], float]
"""Of a shape: seconds from one stage to another of a message of so many bytes."""


@dataclass(frozen=True, slots=True)
class PathBound:
    """What is known of a pipeline.

    ``seconds`` bound all its plans with the cuts; ``estimate_s`` is about what the best uniform
    plan takes, infinite where none fits. ``shares_s``: of each layer kind, seconds that each of
    its options adds to the time of a stage, shape (options,), as the chains weigh them.
    ``rows``: of each layer kind, the option of the best uniform plan; none where none fits.
    ``is_whole``: whether all was done that can be, not only until the bound was high enough.
    """

    seconds: float
    estimate_s: float
    shares_s: Mapping[int, Floats]
    rows: Mapping[int, int]
    is_whole: bool


class _Weighed(NamedTuple):
    """A chain with its best weights: the least that it takes, and what of that is of no layer.

    ``seconds``: of the options of the layers in each place.
    """

    chain: Chain
    least_s: float
    rest_s: float
    seconds: dict[Place, Floats]


class PathBounds:
    """Bounds of the pipelines of a place.

    Args:
        tables: of each layer kind.
        kinds: the kind of every layer.
        slowdown: factor of work and communication while they share the device.
        message_s: seconds of a message of so many bytes between two stages of a pipeline.
    """

    def __init__(
        self,
        tables: Mapping[int, PassTable],
        kinds: Sequence[int],
        slowdown: float,
        message_s: MessageSeconds,
    ) -> None:
        self.tables = tables
        self.kinds = tuple(kinds)
        self.main = Counter(self.kinds).most_common(1)[0][0]
        self.slowdown = min(slowdown, MOST_SLOWDOWN)
        self.message_s = message_s

    @property
    def least_bytes(self) -> float:
        """What all layers need on their devices, each at its smallest, with one micro-batch."""
        least = {kind: float(table.bytes_at(1).min()) for kind, table in self.tables.items()}
        return sum(least[kind] for kind in self.kinds)

    def bound(self, shape: Shape, cuts: Sequence[int], budget_bytes: float) -> PathBound:
        """What is certain of the passes of a pipeline cut like this; arguments as `BoundedCut`."""
        return BoundedCut(self, shape, cuts, budget_bytes).bound()


class BoundedCut(CutPipeline):
    """A pipeline with fixed cuts, while it is bounded: closed chains first, once.

    Args:
        bounds: of its place.
        shape: the pipeline.
        cuts: cut points of its chunks.
        budget_bytes: what a device may hold.
    """

    def __init__(
        self, bounds: PathBounds, shape: Shape, cuts: Sequence[int], budget_bytes: float
    ) -> None:
        super().__init__(bounds.tables, bounds.kinds, shape, cuts)
        self.slowdown, self.message_s = bounds.slowdown, bounds.message_s
        self.budget_bytes = budget_bytes
        self._best_s = 0.0
        self._longest: _Weighed | None = None
        self._least_travel_s = self._travels()
        self._uniform_s = np.zeros(len(self.tables[self.main].strategies))
        self._shares_s = {kind: np.zeros(len(t.strategies)) for kind, t in self.tables.items()}

        needs = self._stage_needs()
        self._can_fit = float(needs.min(axis=1).max()) <= budget_bytes
        self._fits = needs.max(axis=0) <= budget_bytes
        if self._can_fit:
            for chain in chains(self.pipeline, self._stages()):
                self._weigh(chain)

    def bound(self, enough_s: float = float("inf")) -> PathBound:
        """The bound, with every chain that is looked at.

        Args:
            enough_s: a bound as high as this is high enough.
        """
        if not self._can_fit:
            return PathBound(float("inf"), float("inf"), {}, {}, is_whole=True)
        played_s, rows, mean = self._play(enough_s)
        if mean is not None and self._best_s < played_s * (1 - CLOSE):
            self._ascend(mean, min(enough_s, played_s))
        self._price(enough_s)
        seconds = self._best_s * (1 - ROUNDING)
        whole = self._best_s < enough_s
        return PathBound(seconds, max(played_s, seconds), self._spread(), rows, whole)

    @property
    def _is_played(self) -> bool:
        """Whether critical paths are followed: where closed chains say less than they do."""
        return self.shape.kind in SPLIT_KINDS and self.shape.passes <= MOST_PASSES

    def _price(self, enough_s: float) -> None:
        """Raise the bound by what devices may hold, on the chain that takes longest."""
        if self._longest is None or self._best_s >= enough_s:
            return
        known: dict[int, float] = {}
        held_s = 0.0
        for rows in self._rows(self._longest.chain, self._longest.seconds):
            if id(rows) not in known:
                known[id(rows)] = least_within(rows, self.budget_bytes)
            held_s += known[id(rows)]
        self._best_s = max(self._best_s, self._longest.rest_s + held_s)

    def _best_rows(self) -> dict[int, int]:
        """The options of about the best uniform plan, of those that fit if any does."""
        fits = self._fits
        wanted = np.where(fits, self._uniform_s, np.inf) if fits.any() else self._uniform_s
        row = int(np.argmin(wanted))
        return {kind: self.row_beside(kind, row) for kind in self.tables}

    def _play(self, enough_s: float) -> tuple[float, dict[int, int], _Weighed | None]:
        """Weigh the critical paths of good uniform plans: each is a chain, and tells of a better.

        Returns:
            Seconds of the best that fits, its options and the mean of its chains; infinite and
            none if none does.
        """
        fits = bool(self._fits.any())
        best: tuple[float, dict[int, int], _Weighed | None] = (float("inf"), {}, None)
        known: set[tuple[int, ...]] = set()
        for _ in range(PLAYS if self._is_played else 0):
            if self._best_s >= enough_s:
                break
            rows = self._best_rows()
            if tuple(rows.values()) in known:
                break
            known.add(tuple(rows.values()))
            played_s, found = self._followed(by_kind(rows))
            *_, mean = (self._weigh(chain) for chain in found)
            if fits and played_s < best[0]:
                best = played_s, rows, mean
            if self._best_s >= played_s * (1 - CLOSE):
                break
        if not known and fits:
            rows = self._best_rows()
            best = float(self._uniform_s[rows[self.main]]), rows, None
        return best

    def _followed(self, choice: Choice) -> tuple[float, list[Chain]]:
        """Seconds of the plan of a choice, and its critical paths."""
        passes, travels_s = Reference(self, choice, self.slowdown), self._travels(choice)
        return critical_chains(self.pipeline, passes, travels_s.tolist())

    def _ascend(self, mean: _Weighed, enough_s: float) -> None:
        """Raise the bound: play the plan that the mean of all chains makes best, and add its own.

        What a plan gains by being fast on one chain only, it loses on the next (Frank and Wolfe's
        method on the dual problem).
        """
        for number in range(ASCENTS):
            if self._best_s >= enough_s:
                return
            _, found = self._followed(self._chosen(mean.chain, mean.seconds))
            mean = self._weigh(mixed(mean.chain, found[-1], 2.0 / (number + 3)))

    def _travels(self, choice: Choice | None = None) -> Floats:
        """Seconds of the message into each position, forward and backward; else the least."""
        found = np.zeros((2, self.shape.positions))
        for position in range(1, self.shape.positions):
            kind = self.edges[position - 1][1]
            sizes = self.tables[kind].output_bytes
            last = next(s for s in self.places[position - 1] if s[-1])
            row = None if choice is None else choice(position - 1, last)
            size = float(sizes.min() if row is None else sizes[row])
            ends = (self.shape.stage_of(position - 1), self.shape.stage_of(position))
            found[0, position] = found[1, position - 1] = self._message(*ends, size)
        return found

    def _message(self, stage: int, peer: int, size: float) -> float:
        return 0.0 if stage == peer else self.message_s(self.shape, stage, peer, size)

    def row_beside(self, kind: int, main: int) -> int:
        """The best option of a kind beside this one of the main kind, in the same layout."""
        if kind == self.main:
            return main
        table, layout = self.tables[kind], self.tables[self.main].strategies[main].layout
        like = np.array([strategy.layout == layout for strategy in table.strategies])
        seconds = self._shares_s[kind]
        return int(np.argmin(np.where(like, seconds, np.inf) if like.any() else seconds))

    def _spread(self) -> dict[int, Floats]:
        """The seconds of each kind's options on one layer, as if they were its whole stage's."""
        found = {}
        for kind, seconds in self._shares_s.items():
            layers = sum(chunk[kind] for chunk in self.held)
            stages = {
                stage
                for stage in range(self.shape.stages)
                for chunk in range(self.shape.chunks)
                if self.held[self.shape.position(stage, chunk)][kind]
            }
            found[kind] = seconds * len(stages) / layers
        return found

    def _weigh(self, chain: Chain) -> _Weighed:
        """Note the least that a chain takes, and what it takes in uniform plans."""
        weights = chain_weights(chain, self.slowdown)
        costs = {kind: weighed(table, weights) for kind, table in self.tables.items()}
        layers = self._layers(chain)
        ways = weights.shape[1]
        rest = self._once(chain, weights) + float((chain.hops * self._least_travel_s).sum())
        least = np.zeros(ways)
        each: dict[Place, Floats] = {}
        for place, count in layers.items():
            role, kind, *_ = place
            each[place] = costs[kind][:, role]
            shown = self._shown(place[1:])
            if shown is not None:
                each[place] = each[place] + shown @ weights[role, :, WORK].T
            least += count * each[place].min(axis=0)
        way = int(np.argmax(rest + least))
        chosen = {place: seconds[:, way] for place, seconds in each.items()}
        found = _Weighed(chain, float((rest + least)[way]), float(rest[way]), chosen)
        self._best_s = max(self._best_s, found.least_s)
        if self._longest is None or found.least_s > self._longest.least_s:
            self._longest = found
        shares = {kind: np.zeros(len(known)) for kind, known in self._shares_s.items()}
        for place, seconds in chosen.items():
            shares[place[1]] += layers[place] * seconds
        others_s = sum(float(s.min()) for kind, s in shares.items() if kind != self.main)
        uniform_s = shares[self.main] + others_s + found.rest_s
        self._uniform_s = np.maximum(self._uniform_s, uniform_s)
        for kind, seconds in shares.items():
            self._shares_s[kind] = np.maximum(self._shares_s[kind], seconds)
        return found

    def _rows(self, chain: Chain, seconds: Mapping[Place, Floats]) -> Iterator[Rows]:
        """The layers of each stage, with their options' seconds on a chain and bytes."""
        known: dict[tuple[object, ...], Rows] = {}
        for stage in range(self.shape.stages):
            places = self._held(stage)
            key = tuple(
                (chain.roles[place], flight, *sorted(self.places[place].items()))
                for place, flight in places
            )
            if key not in known:
                known[key] = [
                    (
                        count,
                        seconds[chain.roles[place], *seat],
                        self.tables[seat[0]].bytes_at(flight),
                    )
                    for place, flight in places
                    for seat, count in self.places[place].items()
                ]
            yield known[key]

    def _chosen(self, chain: Chain, seconds: Mapping[Place, Floats]) -> Choice:
        """The best option of each seat of each position on a chain, within what devices hold."""
        found: dict[tuple[int, Seat], int] = {}
        prices: dict[int, float] = {}
        for stage, rows in enumerate(self._rows(chain, seconds)):
            if id(rows) not in prices:
                prices[id(rows)] = best_price(rows, self.budget_bytes)
            price, layers = prices[id(rows)], iter(rows)
            for place, _ in self._held(stage):
                for seat in self.places[place]:
                    _, own_s, bytes_ = next(layers)
                    found[place, seat] = int(np.argmin(own_s + price * bytes_))
        return lambda position, seat: found[position, seat]
