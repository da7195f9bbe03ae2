"""Realistic questions as spaces: catalogue models on catalogue clusters."""

from __future__ import annotations

from oracles.brute_force import Space

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.solve.problem import Problem


def problem(model: str, cluster: str, batch: int, seq_len: int, **inputs: object) -> Problem:
    return resolve(
        Inputs(model=model, cluster=cluster, global_batch=batch, seq_len=seq_len, **inputs)  # type: ignore[arg-type]
    )


def space_of(found: Problem) -> Space:
    """The question as the oracle's kind of space."""
    return Space(
        model=found.model,
        cluster=found.cluster,
        workload=found.workload,
        stack=found.stack,
        profile=found.machine.profile,
    )


def space(model: str, cluster: str, batch: int, seq_len: int, **inputs: object) -> Space:
    return space_of(problem(model, cluster, batch, seq_len, **inputs))
