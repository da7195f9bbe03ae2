"""Seconds of layer passes by term: exposed communication, host time, techniques."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import NamedTuple, Protocol

from ...spec.cluster.stack_spec import StackSpec
from ...spec.report.work_items import Collective, Kernel
from ..kernel_latency.profile_table import Latency
from ..symbolic.lowered_pass import LoweredPass
from ..symbolic.tape import TapeEntry, WorkItem
from ..symbolic.work_overlap import ExpertStage, WorkOverlap
from .collectives import crossed_levels
from .costs import (
    EXPOSED_EP,
    KERNEL_TERMS,
    NO_SERIAL,
    SERIAL_TERMS,
    TECHNIQUE,
    TERM_NUMBER,
    TERMS,
    PassCost,
    TechniqueSeconds,
    TermSeconds,
)
from .expert_streams import ExpertStreams, PlacedChunks, PricedChunks
from .machine import Machine
from .overlap import ChunkPipeline, exposed_over_kernels, exposed_over_product


class ItemPrices(Protocol):
    """Prices of single items on one machine and stack.

    ``launch_s``: host seconds per eager launch; ``pass_s``: per layer pass; ``wait_s``: per awaited
    collective.
    """

    machine: Machine
    stack: StackSpec
    launch_s: float
    pass_s: float
    wait_s: float

    def kernel(self, kernel: Kernel) -> Latency:
        """Seconds of one kernel."""

    def collective(self, item: Collective) -> Latency:
        """Seconds of one collective."""


class _PassWork(NamedTuple):
    """Seconds of items by term, without host time, and by source.

    ``launches`` are eager ones; ``host_s`` is further host time. ``serial_s`` of ``SERIAL_TERMS``
    run beside nothing; ``beside_pass_s``, in no term yet, beside all kernels of the pass.
    """

    terms_s: TermSeconds
    launches: int
    host_s: float
    measured_s: float
    learned_s: float
    technique_s: TechniqueSeconds = ()
    serial_s: TermSeconds = NO_SERIAL
    beside_pass_s: float = 0.0


class _ExpertChunks:
    """Chunks of experts' rows in a pass, and the links that they cross."""

    def __init__(self, prices: ItemPrices) -> None:
        self._prices = prices
        self._streams = ExpertStreams()
        self._levels: tuple[set[str], set[str]] = (set(), set())

    @property
    def ended(self) -> PricedChunks | None:
        """The last chunks that have all come back."""
        return self._streams.ended

    def exposed_s(
        self, work: WorkItem, seconds: float, overlap: WorkOverlap, following: Iterable[TapeEntry]
    ) -> float:
        """Seconds of an item on the stream of products; the last combine has all that is exposed.

        Weights' gradients of the last chunk follow it, and are beside it all the same.
        """
        prices, stage = self._prices, overlap.stage
        if isinstance(work, Kernel):
            if not overlap.trails:
                self._add_kernel(stage, seconds)
            return seconds if stage in ("experts", "weights") else 0.0
        self._streams.add(stage, seconds + prices.wait_s)
        crossed = crossed_levels(work.ranks, work.stride, prices.machine)
        self._levels[stage in ("gather", "scatter")].update(c.level.level for c in crossed)
        if stage != "combine" or overlap.chunk < overlap.chunks - 1:
            return 0.0
        for entry in takewhile(lambda e: e.overlap is not None and e.overlap.trails, following):
            if isinstance(entry.work, Kernel):
                self._add_kernel("weights", prices.kernel(entry.work).time_s)
        outer, inner = self._levels
        self._levels = (set(), set())
        slowdown = 1.0 if prices.machine.is_cpu else prices.stack.overlap_slowdown
        return self._streams.exposed_s(overlap.chunks, bool(outer & inner), slowdown)

    def _add_kernel(self, stage: ExpertStage, seconds: float) -> None:
        prices = self._prices
        self._streams.add(stage, seconds + (prices.launch_s if prices.machine.is_cpu else 0.0))


class PassPricer:
    """Price passes of layers, each lowered pass once.

    ``like``: a pricer of equal prices, whose passes are not priced again.
    """

    def __init__(self, prices: ItemPrices, like: PassPricer | None = None) -> None:
        self._prices = prices
        self._works: dict[int, tuple[LoweredPass, _PassWork]] = {} if like is None else like._works
        self._passes: dict[int, tuple[LoweredPass, PassCost]] = {}
        if like is not None:
            self._passes = like._passes

    def layer_pass(self, lowered: LoweredPass) -> PassCost:
        """Seconds of one micro-batch through a layer in one direction."""
        cached = self._passes.get(id(lowered))
        if cached is None or cached[0] is not lowered:
            cached = self._passes[id(lowered)] = (lowered, self.chained((lowered,)))
        return cached[1]

    def chained(self, passes: Iterable[LoweredPass]) -> PassCost:
        """Seconds of these passes as one; see ``Pricer.chained``."""
        works = [self._work(lowered) for lowered in passes]
        if len(works) == 1:
            return self._cost(works[0])
        terms = [sum(values) for values in zip(*(work.terms_s for work in works), strict=True)]
        launches = sum(work.launches for work in works)
        host_s = sum(work.host_s for work in works)
        measured_s = sum(work.measured_s for work in works)
        learned_s = sum(work.learned_s for work in works)
        technique_s = tuple(item for work in works for item in work.technique_s)
        serial = [sum(values) for values in zip(*(work.serial_s for work in works), strict=True)]
        beside_pass_s = sum(work.beside_pass_s for work in works)
        shares = measured_s, learned_s, technique_s, tuple(serial), beside_pass_s
        return self._cost(_PassWork(tuple(terms), launches, host_s, *shares))

    def _work(self, lowered: LoweredPass) -> _PassWork:
        cached = self._works.get(id(lowered))
        if cached is None or cached[0] is not lowered:
            cached = self._works[id(lowered)] = (lowered, self._price_work(lowered))
        return cached[1]

    def _cost(self, work: _PassWork) -> PassCost:
        terms = list(work.terms_s)
        if work.beside_pass_s:
            terms[EXPOSED_EP] += self._exposed_over_pass(work.beside_pass_s, terms)
        priced_s = sum(terms)
        terms[TERM_NUMBER["host"]] += self._host_seconds(work, priced_s)
        shares = work.measured_s, work.learned_s, work.technique_s, work.serial_s
        return PassCost(sum(terms), tuple(terms), priced_s, *shares, work.beside_pass_s)

    def window_s(self, lowered: LoweredPass, seconds: float) -> float:
        """Seconds added by other work between the exchanges of a backward's chunks."""
        chunks = _ExpertChunks(self._prices)
        for _ in self._exposed_entries(lowered, chunks):
            pass
        if chunks.ended is None:
            return seconds
        return chunks.ended.exposed_s(seconds) - chunks.ended.exposed_s()

    def placed_chunks(self, lowered: LoweredPass) -> list[PlacedChunks]:
        """Experts' chunks of a pass where they begin, those of a recomputed forward first."""
        chunks, found = _ExpertChunks(self._prices), list[PlacedChunks]()
        clock_s = start_s = 0.0
        launch_s = self._prices.launch_s if self._prices.machine.is_cpu else 0.0
        inside, ended = False, chunks.ended
        for entry, seconds, _ in self._exposed_entries(lowered, chunks):
            overlap = self._overlap(entry)
            was_inside, inside = inside, overlap is not None and overlap.beside == "experts"
            start_s = clock_s if inside and not was_inside else start_s
            if chunks.ended is not ended and chunks.ended is not None:
                ended = chunks.ended
                found.append(PlacedChunks(start_s, ended))
            if overlap is None or overlap.beside != "pass":
                clock_s += seconds + (launch_s if isinstance(entry.work, Kernel) else 0.0)
        return found

    def exchanges(self, lowered: LoweredPass) -> Iterator[tuple[Collective, float]]:
        """Collectives beside all kernels of a pass, with their undisturbed seconds."""
        for entry, seconds, _ in self._exposed_entries(lowered):
            overlap = self._overlap(entry)
            if isinstance(entry.work, Collective) and overlap and overlap.beside == "pass":
                yield entry.work, seconds

    def _price_work(self, lowered: LoweredPass) -> _PassWork:
        terms = [0.0] * len(TERMS)
        technique_s: dict[str, float] = {}
        launches, measured_s, learned_s, beside_pass_s = 0, 0.0, 0.0, 0.0
        serial_s = [0.0] * len(TERMS)
        for entry, seconds, latency in self._exposed_entries(lowered):
            work, name, overlap = entry.work, entry.breakdown_term, self._overlap(entry)
            if latency.source == "measured":
                measured_s += latency.time_s
            elif latency.source == "learned":
                learned_s += latency.time_s
            launches += isinstance(work, Kernel)
            if name not in TERM_NUMBER:
                technique_s[name] = technique_s.get(name, 0.0) + seconds
            if overlap is not None and overlap.beside == "pass":
                beside_pass_s += seconds
                continue
            term = TERM_NUMBER.get(name, TECHNIQUE)
            terms[term] += seconds
            if overlap is None:
                serial_s[term] += seconds
        host_s = 0.0
        if lowered.host is not None:
            host, factor = lowered.host, self._prices.machine.factors.host
            launches = host.eager
            host_s = host.generated * min(self._prices.launch_s, host.generated_s * factor)
            host_s += host.once_s * factor
        shares = measured_s, learned_s, tuple(technique_s.items())
        serial = tuple(serial_s[number] for number in SERIAL_TERMS)
        return _PassWork(tuple(terms), launches, host_s, *shares, serial, beside_pass_s)

    def exposed_items(self, lowered: LoweredPass) -> Iterator[tuple[WorkItem, str, float, Latency]]:
        """Items of a pass with term and exposed seconds; see ``Pricer.exposed_items``."""
        for entry, seconds, latency in self._exposed_entries(lowered):
            yield entry.work, entry.breakdown_term, seconds, latency

    def _overlap(self, entry: TapeEntry) -> WorkOverlap | None:
        """What an entry runs beside: on cores nothing but experts' chunks on their links."""
        overlap = entry.overlap
        if overlap is None or overlap.beside == "experts" or not self._prices.machine.is_cpu:
            return overlap
        return None

    def _exposed_entries(
        self, lowered: LoweredPass, chunks: _ExpertChunks | None = None
    ) -> Iterator[tuple[TapeEntry, float, Latency]]:
        prices, pipeline = self._prices, ChunkPipeline()
        chunks = chunks or _ExpertChunks(prices)
        product_s, overlapped_s = 0.0, 0.0
        for number, entry in enumerate(lowered.entries):
            work, overlap = entry.work, self._overlap(entry)
            latency = prices.kernel(work) if isinstance(work, Kernel) else prices.collective(work)
            seconds = latency.time_s
            if overlap is not None and overlap.beside == "experts":
                following = islice(lowered.entries, number + 1, None)
                seconds = chunks.exposed_s(work, seconds, overlap, following)
            elif isinstance(work, Kernel):
                pipeline.compute(seconds)
                product_s, overlapped_s = (seconds if work.term == "matmul" else 0.0), 0.0
            else:
                seconds += prices.wait_s
                if overlap is None:
                    pass
                elif overlap.beside == "following":
                    following = islice(lowered.entries, number + 1, None)
                    seconds = self._exposed_over_next(seconds, following, overlap.kernels)
                elif overlap.beside == "gathered":
                    seconds = pipeline.gather(seconds, overlap.chunk)
                elif overlap.beside == "queued":
                    pipeline.queue(seconds)
                    seconds = 0.0
                elif overlap.beside == "scattered":
                    last = overlap.chunk == overlap.chunks - 1
                    seconds = pipeline.scatter(seconds, last)
                elif overlap.beside == "product":
                    # Collectives in a row share their product: each hides only in what is left.
                    exposed_s = exposed_over_product(overlapped_s, product_s, overlap.chunks)
                    overlapped_s += seconds
                    seconds = exposed_over_product(overlapped_s, product_s, overlap.chunks)
                    seconds -= exposed_s
            yield entry, seconds, latency

    def _exposed_over_pass(self, seconds: float, terms: list[float]) -> float:
        work_s = sum(terms[TERM_NUMBER[name]] for name in KERNEL_TERMS)
        return exposed_over_kernels(seconds, work_s, self._prices.stack.overlap_slowdown)

    def _exposed_over_next(
        self, seconds: float, following: Iterable[TapeEntry], count: int
    ) -> float:
        """Exposed seconds of a collective beside so many of the following kernels."""
        prices = self._prices
        kernels = (e.work for e in following if isinstance(e.work, Kernel))
        work_s = sum(prices.kernel(k).time_s for k in islice(kernels, count))
        return exposed_over_kernels(seconds, work_s, prices.stack.overlap_slowdown)

    def _host_seconds(self, work: _PassWork, device_s: float) -> float:
        """Exposed host time: on a core all, else what outlasts the kernels."""
        prices = self._prices
        host_s = work.launches * prices.launch_s + work.host_s + prices.pass_s
        return host_s if prices.machine.is_cpu else max(0.0, host_s - device_s)
