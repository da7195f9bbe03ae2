"""Small spaces with choices among techniques: a few hundred plans each."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from generators.plan_cases import Sizes
from oracles.brute_force import Answer, Restriction, Space, solve

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.technique import KnownTechniques


def with_host(space: Space, host_bytes: int) -> Space:
    """The space with memory of its hosts."""
    groups = tuple(
        replace(group, memory=replace(group.memory, host_bytes=host_bytes))
        for group in space.cluster.groups
    )
    return replace(space, cluster=replace(space.cluster, groups=groups))


FEW = (
    Restriction(axis="recompute", allowed=("none",)),
    Restriction(axis="cp", allowed=(1,)),
    Restriction(axis="schedule", allowed=("1f1b",)),
    Restriction(axis="micro_batch", allowed=(1, 2)),
    Restriction(axis="tp", allowed=(1,)),
)
"""Restrictions to data parallelism without recomputation, so that a space is small."""
TWO = Restriction(axis="dp", allowed=(2,))


@cache
def solved(space: Space) -> Answer:
    """The space's brute force, done once."""
    return solve(space, check_every=7)


def small_space(
    known: KnownTechniques,
    name: str,
    words: tuple[str, ...],
    *more: Restriction,
    cluster: str = "1x2xA100-80GB",
    sizes: Sizes = Sizes(blocks=2, hidden=256, ffn=512, vocab=512),  # noqa: B008
    dtype: str = "fp32",
) -> Space:
    """Two blocks on two devices, with words of a technique to choose among.

    Args:
        known: the technique, and others that may be there.
        name: the technique.
        words: that blocks may have of it.
        more: restrictions that keep the space small.
        cluster: where.
        sizes: of the model.
        dtype: number formats.
    """
    problem = resolve(
        Inputs(model="gpt2", cluster=cluster, global_batch=2, seq_len=64, dtype=dtype)
    )
    named = {name, *(restriction.axis for restriction in more)}
    others = (v.name for v, _ in known.plannable if v.program is None and v.name not in named)
    return Space(
        model=sizes.model(),
        cluster=problem.cluster,
        workload=problem.workload,
        stack=problem.stack,
        profile=problem.machine.profile,
        restrictions=(
            Restriction(axis=name, allowed=words),
            *(Restriction(axis=other, allowed=("none",)) for other in others),
            *more,
        ),
        techniques=known,
    )
