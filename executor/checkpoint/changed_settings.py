"""Settings that differ between a checkpoint and the run that goes on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .manifest import RunFacts

ABSENT = "nothing"
OF_PLANNING = ("workload.objective", "workload.expert_load")
"""They change the plan and nothing of the training."""


def changed_settings(saved: RunFacts, current: RunFacts) -> list[str]:
    """A line for each setting of workload or optimizer that is not the checkpoint's.

    Manifests of earlier versions hold no workload, and only the optimizer's are compared.
    """
    pairs = [("optimizer", saved.optimizer, current.optimizer)]
    if saved.workload is not None and current.workload is not None:
        pairs.append(("workload", saved.workload, current.workload))
    return [
        f"{name} is {now}, and was {before} in the checkpoint"
        for group, theirs, ours in pairs
        for name, before, now in _differences(group, theirs, ours)
        if not any(name == own or name.startswith(f"{own}.") for own in OF_PLANNING)
    ]


def _differences(
    path: str, saved: Mapping[str, Any], current: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    for key in sorted({*saved, *current}):
        before, now = saved.get(key, ABSENT), current.get(key, ABSENT)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from _differences(f"{path}.{key}", before, now)
        elif _plain(before) != _plain(now):
            yield f"{path}.{key}", before, now


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value
