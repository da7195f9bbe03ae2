"""The smallest changes with which a question that nothing fits has a plan.

Each kind of change is tried by planning again, ended at the first plan that fits: without one of
the pins; more memory a device; more nodes; a shorter sequence; a smaller batch. What is named has
a plan. Amounts are bisected a few times, so each is the smallest to within its step, as far as a
search in haste finds plans. The nearest, by how much of the given it changes, comes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from ...datasets.catalogue.device import device
from ...datasets.clusters.parse import parse_cluster
from ...planner.space.pins import Pin
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.errors import InfeasibleError, InputError
from ...spec.rules.plan_rules import workload_violation
from ...spec.units import GIB, format_number
from ..problem.resolve import Problem

COUNTED_NODES = re.compile(r"(\d+)(x\d+x.+)")
MAX_NODES_FACTOR, MAX_HALVINGS, BISECTIONS, MAX_PINS = 64, 6, 4, 6
FINE_STEPS = 8
"""A bracket of nodes or of tokens is bisected down to an eighth of it."""
FitsCheck = Callable[[Problem, tuple[Pin, ...]], bool]


class FeasibleChange(NamedTuple):
    """The part of what was given that changes, and what to ask for instead."""

    share: float
    text: str


def with_feasible_changes(
    error: InfeasibleError, problem: Problem, pins: tuple[Pin, ...], fits: FitsCheck
) -> InfeasibleError:
    """The error with the smallest changes that fit, nearest first; as it was if none was found.

    Args:
        error: of a search that was not cut short.
        problem: what was asked.
        pins: decisions that were fixed.
        fits: whether some plan of a problem with these pins fits.
    """
    found = [*_without_a_pin(problem, pins, fits)]
    if error.need_bytes is not None:
        memory = _more_memory(problem, pins, fits, error.need_bytes)
        nodes = _more_nodes(problem, pins, fits, 1.0 if memory is None else memory.share)
        others = (f(problem, pins, fits) for f in (_shorter_sequence, _smaller_batch))
        found += [change for change in (memory, nodes, *others) if change is not None]
    if not found:
        return error
    text = ", or ".join(change.text for change in sorted(found))
    return InfeasibleError(error.what, text, error.need_bytes, error.proven)


def _without_a_pin(
    problem: Problem, pins: tuple[Pin, ...], fits: FitsCheck
) -> Iterable[FeasibleChange]:
    """Pins that keep every plan from fitting; all of them where no one alone does."""
    alone = [p for p in pins[:MAX_PINS] if fits(problem, tuple(q for q in pins if q is not p))]
    for pin in alone:
        yield FeasibleChange(0.0, f"no --pin {pin.text}")
    if len(pins) > 1 and not alone and fits(problem, ()):
        yield FeasibleChange(0.0, "none of the pins")


def _more_memory(
    problem: Problem, pins: tuple[Pin, ...], fits: FitsCheck, need_bytes: float
) -> FeasibleChange | None:
    """Memory a device, in tenths of a GiB, or in MiB on devices with less than that."""
    if len(problem.cluster.groups) > 1:
        return None
    group = problem.cluster.groups[0]
    has = group.memory.hbm_bytes
    step = GIB // 10 if need_bytes >= GIB else GIB // 1024
    low, high = math.floor(has / step), math.ceil(need_bytes / step)
    high = _bisect(lambda n: fits(_with_memory(problem, n * step), pins), low, high)
    if high * step > device(group.device).capacity_bytes:
        text = f"devices with {_gib(high * step)}"
    else:
        text = f"--memory-gib {high * step / GIB:.4g}"
    return FeasibleChange(high * step / has - 1, text)


def _gib(size_bytes: float) -> str:
    return f"{format_number(size_bytes / GIB)} GiB"


def _with_memory(problem: Problem, hbm_bytes: int) -> Problem:
    cluster = problem.cluster
    group = cluster.groups[0]
    roomier = replace(group, memory=replace(group.memory, hbm_bytes=hbm_bytes))
    return _on_cluster(problem, replace(cluster, groups=(roomier,)))


def _on_cluster(problem: Problem, cluster: ClusterSpec) -> Problem:
    return replace(problem, cluster=cluster, machine=replace(problem.machine, cluster=cluster))


def _more_nodes(
    problem: Problem, pins: tuple[Pin, ...], fits: FitsCheck, share: float
) -> FeasibleChange | None:
    """Nodes like those that there are, where the cluster was given by their number.

    Tried first: as many as would bring the ``share`` of memory that is short.
    """
    counted = COUNTED_NODES.fullmatch(problem.expansion)
    if counted is None or len(problem.cluster.groups) > 1:
        return None
    given, rest = int(counted[1]), counted[2]

    def enough(nodes: int) -> bool:
        try:
            cluster = parse_cluster(f"{nodes}{rest}", "--cluster").cluster
        except InputError:  # more than a rack or the catalogue has
            return False
        own = problem.cluster.groups[0].memory
        groups = tuple(replace(g, memory=own) for g in cluster.groups)
        return fits(_on_cluster(problem, replace(cluster, groups=groups)), pins)

    low, high = given, given + max(1, math.ceil(given * share))
    while not enough(high):
        low, high = high, 2 * high
        if high > MAX_NODES_FACTOR * given:
            return None
    high = _bisect(enough, low, high, max(1, (high - low) // FINE_STEPS))
    devices = high * problem.cluster.groups[0].devices_per_node
    return FeasibleChange(high / given - 1, f"{high} nodes ({devices} devices)")


def _shorter_sequence(
    problem: Problem, pins: tuple[Pin, ...], fits: FitsCheck
) -> FeasibleChange | None:
    """A shorter sequence."""
    given = problem.workload.seq_len
    if problem.objective_choice.objective == "largest-sequence":
        return None

    def short_enough(tokens: int) -> bool:
        shorter = problem.sized(seq_len=tokens)
        return workload_violation(shorter.model, shorter.workload) is None and fits(shorter, pins)

    halves = _halves(given)
    if not halves or not short_enough(halves[-1]):
        return None
    for low, high in zip(halves, [given, *halves], strict=False):
        if short_enough(low):
            step = max(1, (high - low) // FINE_STEPS)
            most = -_bisect(lambda n: short_enough(-n), -high, -low, step)
            return FeasibleChange(1 - most / given, f"--seq-len {most}")
    return None


def _smaller_batch(
    problem: Problem, pins: tuple[Pin, ...], fits: FitsCheck
) -> FeasibleChange | None:
    """A smaller batch: halves, for what divides a batch decides how it is split."""
    given = problem.workload.global_batch
    if problem.objective_choice.objective == "largest-batch":
        return None
    halves = _halves(given)
    if not halves or not fits(problem.sized(global_batch=halves[-1]), pins):
        return None
    for batch in halves:
        if fits(problem.sized(global_batch=batch), pins):
            return FeasibleChange(1 - batch / given, f"--global-batch {batch}")
    return None


def _halves(given: int) -> list[int]:
    """A number's half, the half of that, … as far as they are whole, a few of them."""
    counts = range(1, MAX_HALVINGS + 1)
    return [given >> n for n in counts if given % (1 << n) == 0 and given >> n]


def _bisect(fits: Callable[[int], bool], low: int, high: int, step: int = 1) -> int:
    """The least number to within ``step`` that fits, between one that does not and one that does.

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
