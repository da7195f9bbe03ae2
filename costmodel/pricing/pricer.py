"""Pricer: seconds of lowered work on one machine and stack.

Kernels, collectives and passes have their own pricers (``kernel_pricer``, ``collective_pricer``,
``pass_pricer``); host time and FSDP units are priced here. On a core, whose host runs the kernels,
host time adds to theirs; on an accelerator launches run ahead, exposed only where slower than the
kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from ...datasets.catalogue.links import LinkRates
from ...spec.choices import Overlap
from ...spec.cluster.cluster_spec import LevelName
from ...spec.cluster.stack_spec import OverlapKinds, StackSpec
from ...spec.report.work_items import Collective, Kernel, on_host
from ..kernel_latency.profile_table import Latency
from ..sharding.fsdp_unit import MAX_CACHED_UNITS, FsdpUnit
from ..symbolic.lane_work import Lane, LaneWork, LaneWorks
from ..symbolic.lowered_pass import NO_PASS, LoweredPass
from ..symbolic.tape import WorkItem
from .collective_pricer import CollectivePricer
from .collectives import outermost_level
from .costs import GatherCost, PassCost, ReduceCost, TrafficCost, UnitCost
from .expert_streams import PlacedChunks
from .host_rates import both_ways_slowdown
from .kernel_pricer import KernelPricer
from .machine import Machine
from .pass_pricer import PassPricer


class Pricer:
    """Price work for one machine and stack, every distinct item once.

    Host seconds: ``launch_s`` of an eager launch, ``pass_s`` of a layer pass, ``wait_s`` of a
    collective, ``step_s`` of a step, ``unit_s`` of a unit's gather or reduction, ``message_s`` of a
    message. A ``kernel_pricer`` of the same machine at another link span shares its latencies.
    ``like``: a pricer that shares what it priced, where its machine prices as this one.
    """

    def __init__(
        self,
        machine: Machine,
        stack: StackSpec,
        kernel_pricer: KernelPricer | None = None,
        like: Pricer | None = None,
    ) -> None:
        self.machine = machine
        self.stack = stack = _with_overlap_slowdown(stack, machine)
        self.overlaps = _serial_overlaps(stack) if machine.is_cpu else stack.overlaps
        profile = machine.profile
        host_s = profile.host_s if profile is not None else {}
        host_factor = machine.factors.host
        self.launch_s = host_s.get("kernel", stack.launch_s) * host_factor
        self.launch_s *= machine.rates.host_launch_factor
        # Older profiles time a layer pass, newer ones the wait of ranks at a collective.
        self.pass_s = stack.pass_s if profile is None else host_s.get("layer_pass", 0.0)
        self.pass_s *= host_factor
        self.wait_s = host_s.get("collective", 0.0) * host_factor
        self.step_s = host_s.get("step", stack.step_s) * host_factor
        self.unit_s = host_s.get("unit", 0.0) * host_factor
        self.message_s = host_s.get("message", 0.0) * host_factor
        self._like = like
        alike = None if like is None else like.with_link_span(len(machine.levels))
        alike = None if alike is None or not self._prices_as(alike) else alike
        if alike is not None:
            kernel_pricer = kernel_pricer or alike._kernel_pricer
        self._kernel_pricer: KernelPricer = kernel_pricer or KernelPricer(
            machine, stack.flash_generation
        )
        self._collective_pricer: CollectivePricer = (
            CollectivePricer(machine) if alike is None else alike._collective_pricer
        )
        passes: PassPricer | None = None if alike is None else alike._pass_pricer
        self._pass_pricer: PassPricer = PassPricer(self, passes)
        self._units: dict[int, tuple[FsdpUnit, UnitCost]] = {}
        self._by_link_span = {len(machine.levels): self}

    @property
    def overlap(self) -> Overlap:
        """The widest ``--overlap`` mode fully hidden on this machine and stack."""
        return replace(self.stack, overlaps=self.overlaps).overlap

    @property
    def hides_sharding(self) -> bool:
        """True if any sharding traffic overlaps computation."""
        return self.overlaps.dp_gradient or self.overlaps.dp_parameter

    def with_link_span(self, link_span: int) -> Pricer:
        """Prices of work within the ``link_span`` innermost link levels."""
        pricer = self._by_link_span.get(link_span)
        if pricer is None:
            machine = replace(self.machine, link_span=link_span)
            pricer = Pricer(machine, self.stack, self._kernel_pricer, self._like)
            self._by_link_span[link_span] = pricer
        return pricer

    def _prices_as(self, other: Pricer) -> bool:
        return self.stack == other.stack and self.machine.prices_like(other.machine)

    def kernel(self, kernel: Kernel) -> Latency:
        """Seconds of one kernel on the device."""
        return self._kernel_pricer.latency(kernel)

    def collective(self, item: Collective) -> Latency:
        """Seconds of one undisturbed collective or message."""
        return self._collective_pricer.latency(item)

    def message(self, size_bytes: int, level: LinkRates) -> float:
        """Seconds of a message between two devices over a link level."""
        return self._collective_pricer.message_s(size_bytes, level) + self.message_s

    def layer_pass(self, lowered: LoweredPass) -> PassCost:
        """Seconds of one micro-batch through a layer in one direction."""
        return self._pass_pricer.layer_pass(lowered)

    def passes(self, passes: tuple[LoweredPass, ...]) -> PassCost:
        """Seconds of consecutive passes as one; a single one is cached."""
        return self.layer_pass(passes[0]) if len(passes) == 1 else self.chained(passes)

    def longer_s(self, passes: tuple[LoweredPass, ...], more: LoweredPass) -> float:
        """Seconds added by one more pass to passes in a row."""
        if more == NO_PASS:
            return 0.0
        return self.chained((*passes, more)).time_s - self.chained(passes).time_s

    def chained(self, passes: Iterable[LoweredPass]) -> PassCost:
        """Seconds of these passes as one.

        None may begin with a collective that a product ending another would hide.
        """
        return self._pass_pricer.chained(passes)

    def exposed_items(self, lowered: LoweredPass) -> Iterator[tuple[WorkItem, str, float, Latency]]:
        """Items of a pass: term, added seconds, latency alone.

        A technique's term is its name. Expert dispatch hides beside the whole pass, not here.
        """
        return self._pass_pricer.exposed_items(lowered)

    def unit(self, unit: FsdpUnit) -> UnitCost:
        """Seconds of a unit's gathers and reductions."""
        cached = self._units.get(id(unit))
        if cached is None or cached[0] is not unit:
            if len(self._units) >= MAX_CACHED_UNITS:
                self._units.clear()
            cached = self._units[id(unit)] = (unit, self._price_unit(unit))
        return cached[1]

    def _price_unit(self, unit: FsdpUnit) -> UnitCost:
        fresh = self._traffic(unit.reduce.fresh, self.unit_s)
        outer = self._traffic(unit.reduce.outer)
        after_passes_s = 0.0
        if self._reduces_after_passes(unit) and not unit.reduces_each_micro_batch:
            after_passes_s = fresh.collectives_s + outer.collectives_s
            fresh = fresh._replace(collectives_s=0.0)
            outer = outer._replace(collectives_s=0.0)
        return UnitCost(
            gather=GatherCost(
                forward=self._traffic(unit.gather.forward, self.unit_s),
                backward=self._traffic(unit.gather.backward, self.unit_s),
                outer=self._traffic(unit.gather.outer),
                fetched_s=self.split(_host_copies(unit.gather.forward))[0],
            ),
            reduce=ReduceCost(
                fresh=fresh,
                outer=outer,
                accumulated_kernels_s=self.split(unit.reduce.accumulated)[0] + self.unit_s,
                accumulate_shard_s=self.split(unit.reduce.accumulate_shard)[0],
                upcast_s=self.split(unit.reduce.upcast)[0],
                accumulate_upcast_s=self.split(unit.reduce.accumulate_upcast)[0],
                after_passes_s=after_passes_s,
                offloaded_s=self.split(_host_copies(unit.reduce.fresh))[0],
                fetched_s=self.split(_host_copies(unit.reduce.accumulate_shard))[0],
            ),
        )

    def hides_gather(self, unit: FsdpUnit) -> bool:
        """True if a unit's gathers run beside the layer before."""
        return unit.overlaps.dp_parameter and not self.machine.is_cpu

    def hides_reduction(self, unit: FsdpUnit) -> bool:
        """True if a unit's reductions run beside the next layer's backward."""
        return unit.overlaps.dp_gradient and not self.machine.is_cpu

    def traffic_levels(self, unit: FsdpUnit) -> frozenset[LevelName]:
        """Link levels of a unit's traffic that runs beside layers."""
        gather, reduce = unit.gather, unit.reduce
        items: tuple[WorkItem, ...] = ()
        if self.hides_gather(unit):
            items += (*gather.forward, *gather.backward, *gather.outer)
        if self.hides_reduction(unit):
            items += (*reduce.fresh, *reduce.outer)
        return frozenset(self._levels(items))

    def sums_s(self, items: Iterable[WorkItem]) -> float:
        """Seconds of collectives in a row that the host waits for."""
        seconds = [self.collective(i).time_s for i in items if isinstance(i, Collective)]
        return sum(seconds) + self.wait_s * len(seconds)

    def window_s(self, lowered: LoweredPass, seconds: float) -> float:
        """Seconds added by other work between the exchanges of a backward's chunks."""
        return self._pass_pricer.window_s(lowered, seconds)

    def placed_chunks(self, lowered: LoweredPass) -> list[PlacedChunks]:
        """Experts' chunks of a pass where they begin, those of a recomputed forward first."""
        return self._pass_pricer.placed_chunks(lowered)

    def exchange_s(self, passes: tuple[LoweredPass, ...], levels: frozenset[LevelName]) -> float:
        """Seconds of collectives beside all kernels of a layer's passes, over such levels."""
        return sum(
            seconds
            for lowered in passes
            for item, seconds in self._pass_pricer.exchanges(lowered)
            if levels.intersection(self._levels((item,)))
        )

    def _levels(self, items: Iterable[WorkItem]) -> Iterator[LevelName]:
        for item in items:
            if isinstance(item, Collective) and item.ranks > 1:
                yield outermost_level(item, self.machine).level

    def _reduces_after_passes(self, unit: FsdpUnit) -> bool:
        return self.stack.reductions == "after_passes" and not self.hides_reduction(unit)

    def _traffic(self, items: Iterable[WorkItem], host_s: float = 0.0) -> TrafficCost:
        kernels_s, collectives_s = self.split(items)
        return TrafficCost(kernels_s + host_s, collectives_s)

    def lane_s(self, work: LaneWork) -> float:
        """Seconds of a technique's work on its lane, undisturbed."""
        return sum(self.split(work.items))

    @cached_property
    def both_ways_slowdown(self) -> float:
        """Factor by which copies to and from the host slow one another, as they coexist."""
        return both_ways_slowdown(self.machine.profile)

    def in_line(self, work: LaneWork) -> bool:
        """True if work on a lane stops the computation: on cores all but the wire's does."""
        return self.machine.is_cpu and work.lane != "wire"

    def in_line_s(self, works: LaneWorks) -> float:
        """Seconds of the lanes' work that stops the computation."""
        return sum(self.lane_s(work) for work in works if self.in_line(work))

    def busiest_lane_s(self, works: LaneWorks) -> float:
        """Seconds of the busiest lane that does not stop it."""
        seconds: dict[Lane, float] = {}
        for work in works:
            if not self.in_line(work):
                seconds[work.lane] = seconds.get(work.lane, 0.0) + self.lane_s(work)
        return max(seconds.values(), default=0.0)

    def split(self, items: Iterable[WorkItem]) -> tuple[float, float]:
        """Seconds of kernels (with their launches) and of collectives among ``items``."""
        kernels_s = collectives_s = 0.0
        launch_s = self.launch_s if self.machine.is_cpu else 0.0
        latencies = self._kernel_pricer.latencies
        for item in items:
            if isinstance(item, Kernel):
                kernels_s += (latencies.get(item) or self.kernel(item)).time_s + launch_s
            else:
                collectives_s += self.collective(item).time_s
        return kernels_s, collectives_s


def _host_copies(items: Iterable[WorkItem]) -> list[WorkItem]:
    return [item for item in items if isinstance(item, Kernel) and on_host(item.op)]


def _with_overlap_slowdown(stack: StackSpec, machine: Machine) -> StackSpec:
    measured = None if machine.profile is None else machine.profile.overlap_slowdown
    requested = machine.rates.overlap_slowdown
    slowdown = measured if requested is None else requested
    return stack if slowdown is None else replace(stack, overlap_slowdown=slowdown)


def _serial_overlaps(stack: StackSpec) -> OverlapKinds:
    """On cores only messages overlap computation; the host sends them anyway."""
    return OverlapKinds(pp=stack.overlaps.pp)
