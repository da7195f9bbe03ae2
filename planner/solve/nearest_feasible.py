"""Smallest changes that make an infeasible problem feasible.

Each change is tried by a search up to the first feasible plan: without one of the pins; more
memory a device; more nodes; a shorter sequence; a smaller batch. Every named change has a plan.
Amounts are bisected a few times, so each is the smallest to within its step, as far as a quick
search finds plans. The nearest, by relative change, comes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from ...datasets.catalogue.device import device
from ...datasets.clusters.parse import parse_cluster
from ...spec.errors import InfeasibleError, InputError
from ...spec.rules.plan_rules import workload_violation
from ...spec.units import GIB, format_number
from ..space.pins import Pin
from .feasibility import QuickProbe
from .problem import Problem

COUNTED_NODES = re.compile(r"(\d+)(x\d+x.+)")
MAX_NODES_FACTOR, MAX_HALVINGS, BISECTIONS, MAX_PINS = 64, 6, 4, 6
FINE_STEPS = 8
"""A bracket of nodes or of tokens is bisected down to an eighth of it."""


class FeasibleChange(NamedTuple):
    """Relative size of a change, and the request to make instead."""

    share: float
    text: str


def with_feasible_changes(
    error: InfeasibleError, problem: Problem, pins: tuple[Pin, ...], probe: QuickProbe
) -> InfeasibleError:
    """Error with the smallest feasible changes, nearest first, if any."""
    search = _ChangeSearch(problem=problem, pins=pins, probe=probe)
    changes = [*search.without_a_pin()]
    if error.need_bytes is not None:
        memory = search.more_memory(error.need_bytes)
        nodes = search.more_nodes(1.0 if memory is None else memory.share)
        others = (memory, nodes, search.shorter_sequence(), search.smaller_batch())
        changes += [change for change in others if change is not None]
    if not changes:
        return error
    text = ", or ".join(change.text for change in sorted(changes))
    return InfeasibleError(error.what, text, error.need_bytes, error.proven)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangeSearch:
    """Search for the smallest change of each kind."""

    problem: Problem
    pins: tuple[Pin, ...]
    probe: QuickProbe

    def _fits(self, problem: Problem) -> bool:
        return self.probe.fits(problem, self.pins)

    def without_a_pin(self) -> Iterable[FeasibleChange]:
        """Pins that each prevent every plan; all if none alone does."""
        alone = [pin for pin in self.pins[:MAX_PINS] if self._fits_without(pin)]
        for pin in alone:
            yield FeasibleChange(0.0, f"no --pin {pin.text}")
        if len(self.pins) > 1 and not alone and self.probe.fits(self.problem, ()):
            yield FeasibleChange(0.0, "none of the pins")

    def _fits_without(self, pin: Pin) -> bool:
        return self.probe.fits(self.problem, tuple(p for p in self.pins if p is not pin))

    def more_memory(self, need_bytes: float) -> FeasibleChange | None:
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
        return FeasibleChange(high * step / hbm_bytes - 1, text)

    def _fits_memory(self, step_bytes: int, count: int) -> bool:
        cluster = self.problem.cluster
        group = cluster.groups[0]
        memory = replace(group.memory, hbm_bytes=count * step_bytes)
        changed = replace(cluster, groups=(replace(group, memory=memory),))
        return self._fits(self.problem.on_cluster(changed))

    def more_nodes(self, share: float) -> FeasibleChange | None:
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
        return FeasibleChange(high / nodes - 1, f"{high} nodes ({devices} devices)")

    def _fits_nodes(self, node_text: str, count: int) -> bool:
        try:
            cluster = parse_cluster(f"{count}{node_text}", "--cluster").cluster
        except InputError:  # more than a rack or the catalogue has
            return False
        memory = self.problem.cluster.groups[0].memory
        groups = tuple(replace(group, memory=memory) for group in cluster.groups)
        return self._fits(self.problem.on_cluster(replace(cluster, groups=groups)))

    def shorter_sequence(self) -> FeasibleChange | None:
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
                return FeasibleChange(1 - most / seq_len, f"--seq-len {most}")
        return None

    def _fits_tokens(self, tokens: int) -> bool:
        shorter = self.problem.sized(seq_len=tokens)
        violation = workload_violation(shorter.model, shorter.workload)
        return violation is None and self._fits(shorter)

    def _fits_negated_tokens(self, tokens: int) -> bool:
        return self._fits_tokens(-tokens)

    def smaller_batch(self) -> FeasibleChange | None:
        """Smaller batch: halves, since its divisors decide the splits."""
        global_batch = self.problem.workload.global_batch
        if self.problem.objective_choice.objective == "largest-batch":
            return None
        halves = _halves(global_batch)
        if not halves or not self._fits_batch(halves[-1]):
            return None
        for batch in halves:
            if self._fits_batch(batch):
                return FeasibleChange(1 - batch / global_batch, f"--global-batch {batch}")
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
