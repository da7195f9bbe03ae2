"""Smallest changes that make an infeasible problem feasible.

Each change is tried by a quick search: without one of the pins; 8-bit moments, 16-bit states,
states on the hosts, adapters; more memory a device; more nodes; a shorter sequence; a smaller
batch. Amounts are bisected a few times, so each is the smallest to within its step, as far as a
quick search finds plans. Pins come first, then the cheapest: device seconds (or money) a sample, a
shorter sample counting for its part. Once the work is spent, a change of states is given by its
memory alone, last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from ...datasets.catalogue.device import device
from ...datasets.clusters.parse import parse_cluster
from ...spec.errors import InfeasibleError, InputError
from ...spec.rules.plan_rules import workload_violation
from ...spec.units import GIB, format_number
from ..space.pins import Pin
from .feasibility import QuickPlan, QuickProbe
from .problem import Problem
from .state_changes import StateChange, state_changes

COUNTED_NODES = re.compile(r"(\d+)(x\d+x.+)")
MAX_NODES_FACTOR, MAX_HALVINGS, BISECTIONS, MAX_PINS = 64, 6, 4, 6
FINE_STEPS = 8
"""A bracket of nodes or of tokens is bisected down to an eighth of it."""


class FeasibleChange(NamedTuple):
    """Cost of a sample after a change, and the request to make instead."""

    cost: float
    text: str


class SizedChange(NamedTuple):
    """Smallest change of a size: its relative amount, its words, the changed problem."""

    share: float
    text: str
    problem: Problem


def with_feasible_changes(
    error: InfeasibleError, problem: Problem, pins: tuple[Pin, ...], probe: QuickProbe
) -> InfeasibleError:
    """Error with the smallest feasible changes, cheapest first, if any."""
    search = _ChangeSearch(problem=problem, pins=pins, probe=probe)
    changes = [*search.without_a_pin()]
    if error.need_bytes is not None:
        changes += search.other_states(error.need_bytes, error.by or {})
        memory = search.more_memory(error.need_bytes)
        nodes = search.more_nodes(1.0 if memory is None else memory.share)
        sized = (memory, nodes, search.shorter_sequence(), search.smaller_batch())
        changes += [search.priced(change) for change in sized if change is not None]
    if not changes:
        return error
    text = ", or ".join(change.text for change in sorted(changes))
    return InfeasibleError(error.what, text, error.need_bytes, error.proven, by=error.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangeSearch:
    """Search for the smallest change of each kind."""

    problem: Problem
    pins: tuple[Pin, ...]
    probe: QuickProbe

    def _fits(self, problem: Problem) -> bool:
        return self.probe.fits(problem, self.pins)

    def priced(self, change: SizedChange) -> FeasibleChange:
        """A change that fits, with the cost of a sample."""
        plan = self.probe.plan(change.problem, self.pins)
        cost = math.inf if plan is None else self._sample_cost(change.problem, plan)
        return FeasibleChange(cost, change.text)

    def _sample_cost(self, changed: Problem, plan: QuickPlan) -> float:
        tokens = changed.workload.global_batch * changed.workload.seq_len
        return plan.cost / tokens * self.problem.workload.seq_len

    def other_states(self, need_bytes: float, by: Mapping[str, float]) -> Iterator[FeasibleChange]:
        """Changes of states that fit, or that should by their memory if none is planned."""
        named: set[str] = set()
        for change in state_changes(self.problem):
            if change.beyond in named:
                continue
            if self.probe.is_spent:
                yield from self._unplanned(change, need_bytes, change.freed_bytes(by))
                continue
            plan = self.probe.plan(change.problem, self.pins, all_shapes=True)
            if plan is not None:
                amount = f" {math.ceil(plan.host_bytes / GIB)}" if change.host else ""
                cost = self._sample_cost(change.problem, plan)
                named.add(change.text)
                yield FeasibleChange(cost, change.text + amount)

    def _unplanned(
        self, change: StateChange, need_bytes: float, freed_bytes: float
    ) -> Iterator[FeasibleChange]:
        has_bytes = max(group.memory.hbm_bytes for group in self.problem.cluster.groups)
        if need_bytes - freed_bytes <= has_bytes:
            amount = f"{_gib(need_bytes)} - {_gib(freed_bytes)}"
            yield FeasibleChange(math.inf, f"{change.text} (not planned: {amount})")

    def without_a_pin(self) -> Iterable[FeasibleChange]:
        """Pins that each prevent every plan; all if none alone does."""
        alone = [pin for pin in self.pins[:MAX_PINS] if self._fits_without(pin)]
        for pin in alone:
            yield FeasibleChange(0.0, f"no --pin {pin.text}")
        if len(self.pins) > 1 and not alone and self.probe.fits(self.problem, ()):
            yield FeasibleChange(0.0, "none of the pins")

    def _fits_without(self, pin: Pin) -> bool:
        return self.probe.fits(self.problem, tuple(p for p in self.pins if p is not pin))

    def more_memory(self, need_bytes: float) -> SizedChange | None:
        """Memory a device, in tenths of GiB, or MiB if small."""
        if len(self.problem.cluster.groups) > 1:
            return None
        group = self.problem.cluster.groups[0]
        hbm_bytes = group.memory.hbm_bytes
        step = GIB // 10 if need_bytes >= GIB else GIB // 1024
        low, high = math.floor(hbm_bytes / step), math.ceil(need_bytes / step)
        high = _bisect(partial(self._fits_memory, step), low, high)
        if high * step > device(group.device).capacity_bytes:
            text = f"devices with {_gib(high * step)}"
        else:
            text = f"--memory-gib {high * step / GIB:.4g}"
        return SizedChange(high * step / hbm_bytes - 1, text, self._with_memory(step, high))

    def _fits_memory(self, step_bytes: int, count: int) -> bool:
        return self._fits(self._with_memory(step_bytes, count))

    def _with_memory(self, step_bytes: int, count: int) -> Problem:
        cluster = self.problem.cluster
        group = cluster.groups[0]
        memory = replace(group.memory, hbm_bytes=count * step_bytes)
        changed = replace(cluster, groups=(replace(group, memory=memory),))
        return self.problem.on_cluster(changed)

    def more_nodes(self, share: float) -> SizedChange | None:
        """More nodes like the present ones, for clusters given by number.

        Tried first: as many as cover the ``share`` of memory that is short.
        """
        counted = COUNTED_NODES.fullmatch(self.problem.expansion)
        if counted is None or len(self.problem.cluster.groups) > 1:
            return None
        nodes, fits = int(counted[1]), partial(self._fits_nodes, counted[2])
        low, high = nodes, nodes + max(1, math.ceil(nodes * share))
        while not fits(high):
            low, high = high, 2 * high
            if high > MAX_NODES_FACTOR * nodes:
                return None
        high = _bisect(fits, low, high, max(1, (high - low) // FINE_STEPS))
        devices = high * self.problem.cluster.groups[0].devices_per_node
        changed = self._with_nodes(counted[2], high)
        if changed is None:
            return None
        return SizedChange(high / nodes - 1, f"{high} nodes ({devices} devices)", changed)

    def _fits_nodes(self, node_text: str, count: int) -> bool:
        changed = self._with_nodes(node_text, count)
        return changed is not None and self._fits(changed)

    def _with_nodes(self, node_text: str, count: int) -> Problem | None:
        try:
            cluster = parse_cluster(f"{count}{node_text}", "--cluster").cluster
        except InputError:  # more than a rack or the catalogue has
            return None
        memory = self.problem.cluster.groups[0].memory
        groups = tuple(replace(group, memory=memory) for group in cluster.groups)
        return self.problem.on_cluster(replace(cluster, groups=groups))

    def shorter_sequence(self) -> SizedChange | None:
        """A shorter sequence."""
        seq_len = self.problem.workload.seq_len
        if self.problem.objective_choice.objective == "largest-sequence":
            return None
        halves = _halves(seq_len)
        if not halves or not self._fits_tokens(halves[-1]):
            return None
        for low, high in zip(halves, [seq_len, *halves], strict=False):
            if self._fits_tokens(low):
                step = max(1, (high - low) // FINE_STEPS)
                most = -_bisect(self._fits_negated_tokens, -high, -low, step)
                shorter = self.problem.sized(seq_len=most)
                return SizedChange(1 - most / seq_len, f"--seq-len {most}", shorter)
        return None

    def _fits_tokens(self, tokens: int) -> bool:
        shorter = self.problem.sized(seq_len=tokens)
        violation = workload_violation(shorter.model, shorter.workload)
        return violation is None and self._fits(shorter)

    def _fits_negated_tokens(self, tokens: int) -> bool:
        return self._fits_tokens(-tokens)

    def smaller_batch(self) -> SizedChange | None:
        """Smaller batch: halves, since its divisors decide the splits."""
        global_batch = self.problem.workload.global_batch
        if self.problem.objective_choice.objective == "largest-batch":
            return None
        halves = _halves(global_batch)
        if not halves or not self._fits_batch(halves[-1]):
            return None
        for batch in halves:
            if self._fits_batch(batch):
                smaller = self.problem.sized(global_batch=batch)
                return SizedChange(1 - batch / global_batch, f"--global-batch {batch}", smaller)
        return None

    def _fits_batch(self, batch: int) -> bool:
        return self._fits(self.problem.sized(global_batch=batch))


def _gib(size_bytes: float) -> str:
    return f"{format_number(size_bytes / GIB)} GiB"


def _halves(size: int) -> list[int]:
    counts = range(1, MAX_HALVINGS + 1)
    return [size >> n for n in counts if size % (1 << n) == 0 and size >> n]


def _bisect(fits: Callable[[int], bool], low: int, high: int, step: int = 1) -> int:
    """Minimum fit to within ``step``, above ``low`` and at most ``high``.

    At most 2^BISECTIONS parts of a wide bracket are told apart.
    """
    step = max(step, math.ceil((high - low) / 2**BISECTIONS))
    while high - low > step:
        middle = high - max(1, (high - low) // (2 * step)) * step
        if fits(middle):
            high = middle
        else:
            low = middle
    return high
