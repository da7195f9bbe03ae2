"""Prices: seconds of every lowered pass, gather, reduction and update on one machine.

A price is measured where a profile covers the kernel, else what :mod:`kernel_latency` knows of
the device or has learned from others, else analytic (roofline). On a core the host runs the kernels
itself, so host time adds to kernel time; on an accelerator launches run ahead and only show where
they are slower than the kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from ...datasets.catalogue.links import LinkRates
from ...spec.choices import Overlap
from ...spec.cluster.stack_spec import OverlapKinds, StackSpec
from ...spec.report.work_items import Collective, Kernel, Term, on_host, without_host
from ..kernel_latency.device_latency import DeviceLatency
from ..kernel_latency.profile_table import Curve, KernelTable, Latency
from ..kernel_latency.roofline import kernel_seconds
from ..kernel_latency.stragglers import straggler_seconds
from ..sharding.fsdp_unit import MAX_CACHED_UNITS, FsdpUnit
from ..symbolic.lowered_pass import NO_PASS, LoweredPass
from ..symbolic.tape import TapeEntry, WorkItem
from .collectives import collective_seconds, message_seconds, outermost_level
from .costs import (
    EXPOSED_EP,
    KERNEL_TERMS,
    TECHNIQUE,
    TERM_NUMBER,
    TERMS,
    PassCost,
    TechniqueSeconds,
    TermSeconds,
    UnitCost,
)
from .host_rates import copy_curves, host_price
from .machine import Machine
from .overlap import exposed_over_kernels, exposed_over_product

FACTOR_OF: dict[Term, str] = {
    "matmul": "matmul",
    "attention": "attention",
    "elementwise": "elementwise",
    "optimizer": "elementwise",
}
"""The calibration's factor of each kernel's term."""


class _PassWork(NamedTuple):
    """Seconds of items in a row by term, host time apart; what was timed.

    ``launches`` are eager ones; ``host_s`` what the host does beside them.
    """

    terms_s: TermSeconds
    launches: int
    host_s: float
    measured_s: float
    learned_s: float
    technique_s: TechniqueSeconds = ()


class Pricer:
    """Prices work for one machine and stack; every distinct item is priced once.

    Args:
        machine: rates, with a profile if there is one.
        stack: launch costs, overlap.
    """

    def __init__(self, machine: Machine, stack: StackSpec) -> None:
        self.machine = machine
        self.stack = stack = _with_overlap_slowdown(stack, machine)
        self.overlaps = _serial_overlaps(stack) if machine.is_cpu else stack.overlaps
        profile = machine.profile
        self._table = KernelTable(profile) if profile is not None else None
        self._latency = DeviceLatency(machine.listed.device, stack.flash_generation)
        self._collective_timings = _collective_curves(machine)
        self._copies = copy_curves(profile)
        host = profile.host_s if profile is not None else {}
        slower = machine.factors.host
        self.launch_s = host.get("kernel", stack.launch_s) * slower
        self.launch_s *= machine.rates.host_launch_factor
        # Older profiles have seconds of a layer pass, others what ranks wait at a collective.
        self.pass_s = stack.pass_s if profile is None else host.get("layer_pass", 0.0)
        self.pass_s *= slower
        self.wait_s = host.get("collective", 0.0) * slower
        self.step_s = host.get("step", stack.step_s) * slower
        self.unit_s = host.get("unit", 0.0) * slower
        self.message_s = host.get("message", 0.0) * slower
        self._kernels: dict[Kernel, Latency] = {}
        self._collectives: dict[Collective, Latency] = {}
        self._works: dict[int, tuple[LoweredPass, _PassWork]] = {}
        self._passes: dict[int, tuple[LoweredPass, PassCost]] = {}
        self._units: dict[int, tuple[FsdpUnit, UnitCost]] = {}
        self._by_link_span = {len(machine.levels): self}

    @property
    def overlap(self) -> Overlap:
        """The widest ``--overlap`` mode that this machine and stack hide all of."""
        return replace(self.stack, overlaps=self.overlaps).overlap

    @property
    def hides_sharding(self) -> bool:
        """Whether any of sharding's traffic runs beside computation."""
        return self.overlaps.dp_gradient or self.overlaps.dp_parameter

    def with_link_span(self, link_span: int) -> Pricer:
        """Prices of work that crosses only the ``link_span`` innermost link levels."""
        found = self._by_link_span.get(link_span)
        if found is None:
            found = Pricer(replace(self.machine, link_span=link_span), self.stack)
            found._table, found._kernels = self._table, self._kernels
            self._by_link_span[link_span] = found
        return found

    def kernel(self, kernel: Kernel) -> Latency:
        """Seconds of one kernel on the device."""
        found = self._kernels.get(kernel)
        if found is None:
            if on_host(kernel.op):
                found = self._on_host(kernel)
                self._kernels[kernel] = found
                return found
            measured = self._table.price(kernel) if self._table is not None else None
            if measured is None:
                found = self._predicted_kernel(kernel)
            else:
                found = self._with_changed_rates(kernel, measured)
                factor = getattr(self.machine.factors, FACTOR_OF[kernel.term])
                found = found._replace(time_s=found.time_s * factor)
            self._kernels[kernel] = found
        return found

    def _on_host(self, kernel: Kernel) -> Latency:
        """What the host does, or a copy to or from it; on a core, in the core's own memory."""
        if self.machine.is_cpu:
            return self.kernel(kernel._replace(op=without_host(kernel.op)))
        return host_price(kernel, self.machine, self._copies)

    def _predicted_kernel(self, kernel: Kernel) -> Latency:
        """What the kernel takes on devices of the kind, or by the roofline."""
        device, generation = self.machine.device, self.stack.flash_generation
        found = self._latency.price(kernel)
        if found is None:
            found = Latency(kernel_seconds(kernel, device, generation), "analytic")
        else:
            found = self._with_changed_rates(kernel, found)
        factor = getattr(self.machine.factors, FACTOR_OF[kernel.term])
        seconds = found.time_s if self.machine.is_cpu else straggler_seconds(found.time_s, kernel)
        return Latency(seconds * factor, found.source)

    def _with_changed_rates(self, kernel: Kernel, found: Latency) -> Latency:
        """What was measured of a listed device, on one whose figures a question changes."""
        if not self.machine.rates.changes_device:
            return found
        now, was = (
            kernel_seconds(kernel, machine.device, self.stack.flash_generation)
            for machine in (self.machine, self.machine.listed)
        )
        return found if now == was else Latency(found.time_s * (now / was), "learned")

    def collective(self, item: Collective) -> Latency:
        """Seconds of one collective or message when nothing disturbs it."""
        found = self._collectives.get(item)
        if found is None:
            curve = self._collective_timings.get(_curve_key(item))
            if curve is not None and self._in_node(level := outermost_level(item, self.machine)):
                seconds = curve.at(item.payload_bytes) * self.machine.link_factor(level)
                found = self._collective_with_changed_rates(item, Latency(seconds, "measured"))
            else:
                seconds = collective_seconds(item, self.machine)
                if item.ranks > 1 and self.machine.calibration is not None:
                    seconds *= self.machine.link_factor(outermost_level(item, self.machine))
                found = Latency(seconds, "analytic")
            self._collectives[item] = found
        return found

    def _collective_with_changed_rates(self, item: Collective, found: Latency) -> Latency:
        """What was measured of listed links, on ones whose figures a question changes."""
        if not self.machine.rates.links:
            return found
        machines = self.machine, self.machine.listed
        now, was = (collective_seconds(item, machine) for machine in machines)
        return found if now == was else Latency(found.time_s * (now / was), "learned")

    def message(self, size_bytes: int, level: LinkRates) -> float:
        """Seconds of a message between two devices over a link level."""
        curve, factor = self._collective_timings.get(("send", 2)), self.machine.link_factor(level)
        if curve is not None and self._in_node(level):
            listed = next(one for one in self.machine.listed.levels if one.level == level.level)
            now, was = (message_seconds(size_bytes, one) for one in (level, listed))
            return curve.at(size_bytes) * factor * (now / was) + self.message_s
        return message_seconds(size_bytes, level) * factor + self.message_s

    def _in_node(self, level: LinkRates) -> bool:
        """Whether a level lies within one node, which is where a profile times links."""
        return self.machine.in_node(level)

    def layer_pass(self, lowered: LoweredPass) -> PassCost:
        """Seconds of one micro-batch through a layer in one direction."""
        found = self._passes.get(id(lowered))
        if found is None or found[0] is not lowered:
            found = self._passes[id(lowered)] = (lowered, self.chained((lowered,)))
        return found[1]

    def passes(self, passes: tuple[LoweredPass, ...]) -> PassCost:
        """Seconds of passes in a row as one, found once where it is one."""
        return self.layer_pass(passes[0]) if len(passes) == 1 else self.chained(passes)

    def longer_s(self, passes: tuple[LoweredPass, ...], more: LoweredPass) -> float:
        """By how many seconds passes in a row are longer where one more follows."""
        if more == NO_PASS:
            return 0.0
        return self.chained((*passes, more)).time_s - self.chained(passes).time_s

    def chained(self, passes: Iterable[LoweredPass]) -> PassCost:
        """Seconds of one pass that consists of these.

        None of them may begin with a collective that a product at the end of another would hide.
        """
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
        found = self._works.get(id(lowered))
        if found is None or found[0] is not lowered:
            found = self._works[id(lowered)] = (lowered, self._price_work(lowered))
        return found[1]

    def _cost(self, work: _PassWork) -> PassCost:
        """A whole pass: what hides beside all of its kernels, and what the host adds."""
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
        for work, name, seconds, price in self.exposed_items(lowered):
            if price.source == "measured":
                measured_s += price.time_s
            elif price.source == "learned":
                learned_s += price.time_s
            launches += isinstance(work, Kernel)
            if name not in TERM_NUMBER:
                technique_s[name] = technique_s.get(name, 0.0) + seconds
            terms[TERM_NUMBER.get(name, TECHNIQUE)] += seconds
        host_s = 0.0
        if lowered.host is not None:
            host, slower = lowered.host, self.machine.factors.host
            launches = host.eager
            host_s = host.generated * min(self.launch_s, host.generated_s * slower)
            host_s += host.once_s * slower
        named = tuple(technique_s.items())
        return _PassWork(tuple(terms), launches, host_s, measured_s, learned_s, named)

    def exposed_items(self, lowered: LoweredPass) -> Iterator[tuple[WorkItem, str, float, Latency]]:
        """Each item of a pass: its term, the seconds it adds to the pass, its price alone.

        The term of what a technique adds is its name. Tokens on their way to experts hide beside
        the whole pass, not here.
        """
        product_s, beside_s = 0.0, 0.0
        for number, entry in enumerate(lowered.entries):
            work, name = entry.work, entry.breakdown_term
            price = self.kernel(work) if isinstance(work, Kernel) else self.collective(work)
            seconds = price.time_s
            if isinstance(work, Kernel):
                product_s, beside_s = (seconds if work.term == "matmul" else 0.0), 0.0
            else:
                seconds += self.wait_s
                if entry.technique:
                    pass  # in line, whatever the stack hides
                elif entry.overlapped_kernels:
                    seconds = self._exposed_over_next(seconds, lowered.entries, number)
                elif name == "exposed_tp" and self.overlaps.tp:
                    # Collectives in a row share their product: one cannot hide where another is.
                    shown_s = exposed_over_product(beside_s, product_s)
                    beside_s += seconds
                    seconds = exposed_over_product(beside_s, product_s) - shown_s
            yield work, name, seconds, price

    def _exposed_over_pass(self, terms: list[float]) -> float:
        """What shows of tokens on their way to experts beside the kernels of a pass."""
        if not self.overlaps.ep:
            return terms[EXPOSED_EP]
        work_s = sum(terms[TERM_NUMBER[name]] for name in KERNEL_TERMS)
        return exposed_over_kernels(terms[EXPOSED_EP], work_s, self.stack.overlap_slowdown)

    def _exposed_over_next(
        self, seconds: float, entries: tuple[TapeEntry, ...], number: int
    ) -> float:
        """What shows of the collective at ``number`` beside the kernels that follow it."""
        if not self.overlaps.cp:
            return seconds
        kernels = (e.work for e in entries[number + 1 :] if isinstance(e.work, Kernel))
        work_s = sum(
            self.kernel(k).time_s for k in islice(kernels, entries[number].overlapped_kernels)
        )
        return exposed_over_kernels(seconds, work_s, self.stack.overlap_slowdown)

    def _host_seconds(self, work: _PassWork, device_s: float) -> float:
        """Host time that shows: all of it on a core, what outlasts the kernels elsewhere."""
        host_s = work.launches * self.launch_s + work.host_s + self.pass_s
        return host_s if self.machine.is_cpu else max(0.0, host_s - device_s)

    def unit(self, unit: FsdpUnit) -> UnitCost:
        """Seconds of a unit's gathers and reductions."""
        found = self._units.get(id(unit))
        if found is None or found[0] is not unit:
            if len(self._units) >= MAX_CACHED_UNITS:
                self._units.clear()
            found = self._units[id(unit)] = (unit, self._price_unit(unit))
        return found[1]

    def _price_unit(self, unit: FsdpUnit) -> UnitCost:
        gather_kernels_s, gather_collectives_s = self.split(unit.gather)
        backward_copy_s, backward_wire_s = self.split(unit.gather_backward)
        outer_gather_kernels_s, outer_gather_collectives_s = self.split(unit.outer_gather)
        reduce_kernels_s, reduce_collectives_s = self.split(unit.reduce)
        outer_reduce_kernels_s, outer_reduce_collectives_s = self.split(unit.outer_reduce)
        return UnitCost(
            gather_kernels_s=gather_kernels_s + self.unit_s,
            gather_collectives_s=gather_collectives_s,
            gather_backward_kernels_s=backward_copy_s + self.unit_s,
            gather_backward_collectives_s=backward_wire_s,
            outer_gather_kernels_s=outer_gather_kernels_s,
            outer_gather_collectives_s=outer_gather_collectives_s,
            outer_reduce_kernels_s=outer_reduce_kernels_s,
            outer_reduce_collectives_s=outer_reduce_collectives_s,
            reduce_kernels_s=reduce_kernels_s + self.unit_s,
            reduce_collectives_s=reduce_collectives_s,
            reduce_accumulated_kernels_s=self.split(unit.reduce_accumulated)[0] + self.unit_s,
            accumulate_shard_s=self.split(unit.accumulate_shard)[0],
            upcast_s=self.split(unit.upcast)[0],
            accumulate_upcast_s=self.split(unit.accumulate_upcast)[0],
            fetched_s=self.split(_fetch_copies(unit))[0],
        )

    def split(self, items: Iterable[WorkItem]) -> tuple[float, float]:
        """Seconds of kernels (with their launches) and of collectives among ``items``."""
        copies_s = wires_s = 0.0
        launch_s = self.launch_s if self.machine.is_cpu else 0.0
        known = self._kernels
        for item in items:
            if isinstance(item, Kernel):
                copies_s += (known.get(item) or self.kernel(item)).time_s + launch_s
            else:
                wires_s += self.collective(item).time_s
        return copies_s, wires_s


def _fetch_copies(unit: FsdpUnit) -> list[WorkItem]:
    """Copies from the host that a gather waits for."""
    return [item for item in unit.gather if isinstance(item, Kernel) and on_host(item.op)]


def _with_overlap_slowdown(stack: StackSpec, machine: Machine) -> StackSpec:
    """The stack with the slowdown of work that shares a device as asked, or as measured."""
    measured = None if machine.profile is None else machine.profile.overlap_slowdown
    asked = machine.rates.overlap_slowdown
    slowdown = measured if asked is None else asked
    return stack if slowdown is None else replace(stack, overlap_slowdown=slowdown)


def _serial_overlaps(stack: StackSpec) -> OverlapKinds:
    """On cores nothing runs beside computation but messages, which the host sends anyway."""
    return OverlapKinds(pp=stack.overlaps.pp)


def _curve_key(item: Collective) -> tuple[str, int]:
    """Kind and ranks under which a profile has timed a collective; messages join two ranks."""
    kind, ranks, *_ = item
    return ("send", 2) if kind in ("recv", "send_recv") else (kind, ranks)


def _collective_curves(machine: Machine) -> dict[tuple[str, int], Curve]:
    if machine.profile is None:
        return {}
    points: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for row in machine.profile.collectives:
        if row.beside_product:  # sharing a device is a factor of its own
            continue
        points[row.kind, row.ranks].append((row.payload_bytes, row.time_s))
    return {key: Curve(values) for key, values in points.items()}
