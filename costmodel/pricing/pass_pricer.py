"""Seconds of layer passes by term: exposed communication, host time, techniques."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from ...spec.cluster.stack_spec import OverlapKinds, StackSpec
from ...spec.report.work_items import Collective, Kernel
from ..kernel_latency.profile_table import Latency
from ..symbolic.lowered_pass import LoweredPass
from ..symbolic.tape import TapeEntry, WorkItem
from .costs import (
    EXPOSED_EP,
    KERNEL_TERMS,
    TECHNIQUE,
    TERM_NUMBER,
    TERMS,
    PassCost,
    TechniqueSeconds,
    TermSeconds,
)
from .machine import Machine
from .overlap import exposed_over_kernels, exposed_over_product


class ItemPrices(Protocol):
    """Prices of single items on one machine and stack.

    ``launch_s``: host seconds per eager launch; ``pass_s``: per layer pass; ``wait_s``: per awaited
    collective.
    """

    machine: Machine
    stack: StackSpec
    overlaps: OverlapKinds
    launch_s: float
    pass_s: float
    wait_s: float

    def kernel(self, kernel: Kernel) -> Latency:
        """Seconds of one kernel."""

    def collective(self, item: Collective) -> Latency:
        """Seconds of one collective."""


class _PassWork(NamedTuple):
    """Seconds of items by term, without host time, and by source.

    ``launches`` are eager ones; ``host_s`` is further host time.
    """

    terms_s: TermSeconds
    launches: int
    host_s: float
    measured_s: float
    learned_s: float
    technique_s: TechniqueSeconds = ()


class PassPricer:
    """Price passes of layers, each lowered pass once."""

    def __init__(self, prices: ItemPrices) -> None:
        self._prices = prices
        self._works: dict[int, tuple[LoweredPass, _PassWork]] = {}
        self._passes: dict[int, tuple[LoweredPass, PassCost]] = {}

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
        return self._cost(
            _PassWork(tuple(terms), launches, host_s, measured_s, learned_s, technique_s)
        )

    def _work(self, lowered: LoweredPass) -> _PassWork:
        cached = self._works.get(id(lowered))
        if cached is None or cached[0] is not lowered:
            cached = self._works[id(lowered)] = (lowered, self._price_work(lowered))
        return cached[1]

    def _cost(self, work: _PassWork) -> PassCost:
        terms = list(work.terms_s)
        terms[EXPOSED_EP] = self._exposed_over_pass(terms)
        priced_s = sum(terms)
        terms[TERM_NUMBER["host"]] += self._host_seconds(work, priced_s)
        shares = work.measured_s, work.learned_s
        return PassCost(sum(terms), tuple(terms), priced_s, *shares, work.technique_s)

    def _price_work(self, lowered: LoweredPass) -> _PassWork:
        terms = [0.0] * len(TERMS)
        technique_s: dict[str, float] = {}
        launches, measured_s, learned_s = 0, 0.0, 0.0
        for work, name, seconds, latency in self.exposed_items(lowered):
            if latency.source == "measured":
                measured_s += latency.time_s
            elif latency.source == "learned":
                learned_s += latency.time_s
            launches += isinstance(work, Kernel)
            if name not in TERM_NUMBER:
                technique_s[name] = technique_s.get(name, 0.0) + seconds
            terms[TERM_NUMBER.get(name, TECHNIQUE)] += seconds
        host_s = 0.0
        if lowered.host is not None:
            host, factor = lowered.host, self._prices.machine.factors.host
            launches = host.eager
            host_s = host.generated * min(self._prices.launch_s, host.generated_s * factor)
            host_s += host.once_s * factor
        by_technique = tuple(technique_s.items())
        return _PassWork(tuple(terms), launches, host_s, measured_s, learned_s, by_technique)

    def exposed_items(self, lowered: LoweredPass) -> Iterator[tuple[WorkItem, str, float, Latency]]:
        """Items of a pass with term and exposed seconds; see ``Pricer.exposed_items``."""
        prices = self._prices
        product_s, overlapped_s = 0.0, 0.0
        for number, entry in enumerate(lowered.entries):
            work, name = entry.work, entry.breakdown_term
            latency = prices.kernel(work) if isinstance(work, Kernel) else prices.collective(work)
            seconds = latency.time_s
            if isinstance(work, Kernel):
                product_s, overlapped_s = (seconds if work.term == "matmul" else 0.0), 0.0
            else:
                seconds += prices.wait_s
                if entry.technique:
                    pass  # serial, whatever the stack hides
                elif entry.overlapped_kernels:
                    seconds = self._exposed_over_next(seconds, lowered.entries, number)
                elif name == "exposed_tp" and prices.overlaps.tp:
                    # Collectives in a row share their product: each hides only in what is left.
                    exposed_s = exposed_over_product(overlapped_s, product_s)
                    overlapped_s += seconds
                    seconds = exposed_over_product(overlapped_s, product_s) - exposed_s
            yield work, name, seconds, latency

    def _exposed_over_pass(self, terms: list[float]) -> float:
        if not self._prices.overlaps.ep:
            return terms[EXPOSED_EP]
        work_s = sum(terms[TERM_NUMBER[name]] for name in KERNEL_TERMS)
        return exposed_over_kernels(terms[EXPOSED_EP], work_s, self._prices.stack.overlap_slowdown)

    def _exposed_over_next(
        self, seconds: float, entries: tuple[TapeEntry, ...], number: int
    ) -> float:
        """Exposed seconds of the collective at ``number`` beside following kernels."""
        prices = self._prices
        if not prices.overlaps.cp:
            return seconds
        kernels = (e.work for e in entries[number + 1 :] if isinstance(e.work, Kernel))
        work_s = sum(
            prices.kernel(k).time_s for k in islice(kernels, entries[number].overlapped_kernels)
        )
        return exposed_over_kernels(seconds, work_s, prices.stack.overlap_slowdown)

    def _host_seconds(self, work: _PassWork, device_s: float) -> float:
        """Exposed host time: on a core all, else what outlasts the kernels."""
        prices = self._prices
        host_s = work.launches * prices.launch_s + work.host_s + prices.pass_s
        return host_s if prices.machine.is_cpu else max(0.0, host_s - device_s)
