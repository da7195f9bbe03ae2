"""Changes of states that make a problem need less memory of its devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...costmodel.sharding.optimizers import MOMENTS
from ...datasets.catalogue.device import CPU
from ...datasets.catalogue.node import node
from ...spec.errors import InputError
from ...spec.rules.input_rules import base_violation
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.training import Lora
from .problem import Problem

EIGHT_BIT_BYTES = 2
"""Of two moments in 8 bits, their scales aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A changed problem in the words of flags, with the share of each state's bytes that it frees.

    ``host``: True if states move to memory of the hosts, whose amount its plan says. ``beyond``: a
    lesser change, which makes this one needless where it fits.
    """

    text: str
    problem: Problem
    freed: Mapping[str, float]
    host: bool = False
    beyond: str = ""

    def freed_bytes(self, by: Mapping[str, float]) -> float:
        """Bytes that it frees of a device's bytes by state."""
        return sum(share * by.get(name, 0.0) for name, share in self.freed.items())


def state_changes(problem: Problem) -> Iterator[StateChange]:
    """8-bit moments, 16-bit states, states on the hosts, adapters: those that are a change."""
    workload = problem.workload
    dtype = workload.dtype
    moments = MOMENTS.get(workload.optimizer, 0) * DTYPE_BYTES[dtype.moments]  # adafactor: rows
    in_place = problem.stack.state_layout == "fsdp2"  # weights and gradients in master's format
    kept = max(1, moments if in_place else moments + DTYPE_BYTES[dtype.master])
    if workload.optimizer in ("adamw", "adam"):
        freed = {"optimizer": (moments - EIGHT_BIT_BYTES) / kept}
        yield _of_workload(problem, "--optimizer adamw8bit", freed, optimizer="adamw8bit")
    if dtype.param == "bf16" and dtype.moments == dtype.gradient == "fp32":
        yield from _narrow_states(problem, moments / 2 / kept, in_place)
    if (granted := _with_hosts(problem)) is not None:
        freed = {"optimizer": 1.0}
        yield StateChange(text="--host-gib", problem=granted, freed=freed, host=True)
    if workload.trainable == "full" and not workload.frozen:
        yield from _adapters(problem)


def _adapters(problem: Problem) -> Iterator[StateChange]:
    """Adapters, and the same over frozen weights in 4 bits."""
    freed = {"gradients": 1.0, "optimizer": 1.0}
    change = _of_workload(problem, "--trainable lora:rank=16", freed, trainable=Lora())
    yield change
    quantized = _of_workload(
        problem,
        f"{change.text},base_dtype=nf4",
        freed | {"parameters": 0.5},  # at least: embeddings keep their format
        trainable=Lora(base_dtype="nf4"),
    )
    if base_violation(quantized.problem.workload) is None:
        yield replace(quantized, beyond=change.text)


def _narrow_states(problem: Problem, moments_share: float, in_place: bool) -> Iterator[StateChange]:
    """States in 16 bits, those of 8-bit moments aside; master weights last."""
    has_format = problem.workload.optimizer != "adamw8bit"
    narrow, text = replace(problem.workload.dtype, gradient="bf16"), "--grad-dtype bf16"
    if has_format:
        narrow, text = replace(narrow, moments="bf16"), f"{text} --moment-dtype bf16"
    freed = {
        "gradients": 0.0 if in_place else 0.5,
        "optimizer": moments_share if has_format else 0.0,
    }
    change = _of_workload(problem, text, freed, dtype=narrow)
    yield change
    narrow, text = replace(narrow, master="bf16"), f"{text} --master-dtype bf16"
    freed = {
        "gradients": 0.5,
        "optimizer": 0.5 if has_format else 0.0,
        "parameters": 1 / 3 if in_place else 0.0,
    }
    yield replace(_of_workload(problem, text, freed, dtype=narrow), beyond=change.text)


def _of_workload(
    problem: Problem, text: str, freed: Mapping[str, float], **changed: Any
) -> StateChange:
    workload = replace(problem.workload, **changed)
    return StateChange(text=text, problem=replace(problem, workload=workload), freed=freed)


def _with_hosts(problem: Problem) -> Problem | None:
    """The problem with all memory of its hosts; None if granted, or unknown."""
    cluster = problem.cluster
    if any(g.memory.host_bytes or g.device == CPU for g in cluster.groups):
        return None
    groups = []
    for group in cluster.groups:
        try:
            has_bytes = node(group.node).host_memory_bytes // group.devices_per_node
        except InputError:  # a node that a person typed
            return None
        groups.append(replace(group, memory=replace(group.memory, host_bytes=has_bytes)))
    return problem.on_cluster(replace(cluster, groups=tuple(groups)))
