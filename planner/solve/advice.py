"""Advice on a request: sizes that divide badly, and plans that a slight change breaks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Literal

from ...datasets.clusters.resize import resize
from ...spec.errors import InputError
from ...spec.report.report import Advice
from ...spec.rules.plan_rules import workload_violation
from ..candidates.complexity import FULL_MEMORY, memory_share
from ..candidates.evaluator import Outcome
from ..search.branch_and_bound import BranchAndBound
from ..search.result import StoppedBy
from ..uniform.textbook import fastest_textbook_plan
from .engine import make_evaluator
from .options import SolveOptions
from .problem import Problem

Size = Literal["global_batch", "seq_len", "devices"]
LEAST_GAIN = 0.03
"""Gain of tokens a second and device that is worth a line."""
NEAR = 0.15
"""Sizes that differ by more than this fraction are another request."""
SHARE_OF_DEADLINE = 0.2
"""Share of a deadline after which no other sizes are planned."""
SEQUENCE_GRAINS = (1024, 128)
DEEP_PIPELINE = 4
"""Layers of a stage, on average, below which a pipeline counts as deep."""


def advice(
    problem: Problem,
    options: SolveOptions,
    search: BranchAndBound,
    outcomes: Sequence[Outcome],
    stopped_by: StoppedBy,
) -> tuple[Advice, ...]:
    """Advice on a finished search.

    Args:
        problem: the request.
        options: of its search.
        search: the search.
        outcomes: the answer, then every feasible plan, best first.
        stopped_by: after a deadline or Ctrl-C no other sizes are planned.
    """
    chosen = outcomes[0]
    notes = list(_fragile(search, chosen, outcomes))
    is_early = stopped_by == "deadline" or search.interrupted or not _has_time(search, options)
    if options.is_subproblem or is_early or problem.objective_choice.objective != "throughput":
        return tuple(notes)
    try:
        return (*notes, *_near_sizes(problem, options, chosen))
    except KeyboardInterrupt:  # the answer is there without them
        search.interrupted = True
        return tuple(notes)


def _has_time(search: BranchAndBound, options: SolveOptions) -> bool:
    """True if a small share of the deadline is spent."""
    spent_s = time.monotonic() - search.incumbents.start_s
    return options.deadline_s is None or spent_s < SHARE_OF_DEADLINE * options.deadline_s


def _fragile(
    search: BranchAndBound, chosen: Outcome, outcomes: Sequence[Outcome]
) -> Iterator[Advice]:
    reasons = list(_fragilities(chosen))
    if not reasons:
        return
    sound = next((o for o in outcomes if not list(_fragilities(o))), None)
    loss = None if sound is None else search.value(sound) / search.value(chosen) - 1
    yield Advice(
        about="fragile",
        why=" and ".join(reasons),
        gain=None if loss is None else -loss,
        plan=None if sound is None else sound.plan,
    )


def _fragilities(outcome: Outcome) -> Iterator[str]:
    share, shape = memory_share(outcome), outcome.decision.shape
    if share > FULL_MEMORY:
        yield f"its memory is {share:.1%} full"
    blocks = outcome.plan.models["main"].block_count
    if shape.stages > 1 and blocks < DEEP_PIPELINE * shape.stages:
        yield f"its {shape.stages} stages hold fewer than {DEEP_PIPELINE} of {blocks} blocks each"


def _near_sizes(problem: Problem, options: SolveOptions, chosen: Outcome) -> Iterator[Advice]:
    """Near sizes that train more tokens a second and device, one of each kind."""
    base = _rate(problem, chosen)
    kinds: tuple[tuple[Size, Iterator[tuple[int, Problem]]], ...] = (
        ("global_batch", _near_batches(problem)),
        ("seq_len", _near_sequences(problem)),
        ("devices", _near_devices(problem)),
    )
    for about, changed in kinds:
        gains = []
        for value, other in changed:
            plan = fastest_textbook_plan(make_evaluator(other, options))
            if plan is not None:
                gains.append((_rate(other, plan) / base - 1, value, plan))
        gain, value, plan = max(gains, key=lambda item: item[:2], default=(0.0, 0, None))
        if plan is not None and gain >= LEAST_GAIN:
            yield Advice(
                about=about, why="it divides better", value=value, gain=gain, plan=plan.plan
            )


def _rate(problem: Problem, outcome: Outcome) -> float:
    """Tokens a second and device of the cluster, idle ones too."""
    tokens = problem.workload.tokens_per_step
    return tokens / outcome.step_time_s / problem.cluster.device_count


def _near_batches(problem: Problem) -> Iterator[tuple[int, Problem]]:
    """The multiples of the devices beside a batch that is none."""
    devices, batch = problem.cluster.device_count, problem.workload.global_batch
    if batch % devices:
        below = batch // devices * devices
        for value in (below, below + devices):
            if value and abs(value / batch - 1) <= NEAR:
                yield value, problem.sized(global_batch=value)


def _near_sequences(problem: Problem) -> Iterator[tuple[int, Problem]]:
    """The next round lengths below and above an odd one."""
    length = problem.workload.seq_len
    grain = next((g for g in SEQUENCE_GRAINS if length > 4 * g), None)
    if grain is None or length % grain == 0:
        return
    below = length // grain * grain
    for value in (below, below + grain):
        changed = problem.sized(seq_len=value)
        is_legal = workload_violation(problem.model, changed.workload) is None
        if abs(value / length - 1) <= NEAR and is_legal:
            yield value, changed


def _near_devices(problem: Problem) -> Iterator[tuple[int, Problem]]:
    """The most devices, not much fewer, that divide a batch, where all do not."""
    cluster, batch = problem.cluster, problem.workload.global_batch
    if len(cluster.groups) > 1 or batch % cluster.device_count == 0:
        return
    group = cluster.groups[0]
    several = group.nodes > 1
    count, unit = (group.nodes, group.devices_per_node) if several else (group.devices_per_node, 1)
    for fewer in range(count - 1, max(0, int(count * (1 - NEAR)) - 1), -1):
        if batch % (fewer * unit) == 0:
            nodes, per_node = (fewer, unit) if several else (1, fewer)
            try:
                resized = resize(cluster, group.name, nodes, per_node, "devices").cluster
            except InputError:
                return
            yield fewer * unit, problem.on_cluster(resized)
            return
