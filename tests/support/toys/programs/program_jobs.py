"""Jobs of ranks for the tests of techniques of whole programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from toys.technique_jobs import engine_of, train_with

from shardwright.executor.engine.engine import Engine
from shardwright.executor.launch.rank_context import RankContext


def weights_by_step(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Sums of a rank's weights before a step's end and after it, and of their signed steps.

    ``signs``: whether every weight of the first step moved by the learning rate along its sign.
    """
    engine = engine_of(context, payload)
    hooks = engine.technique_hooks._hooks[payload["technique"]]
    before: list[list[float]] = []
    end_step = hooks.end_step

    def noted() -> None:
        before.append(_flat(engine).tolist())
        end_step()

    hooks.end_step = noted  # type: ignore[method-assign]
    try:
        after, along = [], True
        for _ in range(payload["steps"]):
            weights = _flat(engine)
            gradients: list[Tensor] = []
            engine.step(lambda into=gradients: into.append(_gradients(engine)))  # type: ignore[misc]
            moved = (_flat(engine) - weights).sign()
            along = along and bool(torch.equal(moved, -gradients[0].sign()))
            after.append(_flat(engine).tolist())
        return {"before": before, "after": after, "along_signs": along}
    finally:
        engine.close()


def _flat(engine: Engine) -> Tensor:
    """A few of the weights, as the optimizer has them."""
    parts = [p.data.reshape(-1)[:16] for p in engine.parameters]
    return torch.cat(parts).detach().clone()


def _gradients(engine: Engine) -> Tensor:
    parts = [g.reshape(-1)[:16] for p in engine.parameters if (g := p.grad) is not None]
    return torch.cat(parts).clone()


def resumed(context: RankContext, payload: dict[str, Any]) -> Any:
    """Losses of a run, and of one that stopped half-way and was resumed from its checkpoint."""
    steps, folder = payload["steps"], Path(payload["folder"])
    plain = {k: v for k, v in payload.items() if k != "folder"}
    whole = train_with(context, {**plain, "steps": steps})
    half = {"folder": str(folder), "every": 1}
    first = train_with(context, {**plain, "steps": steps // 2, "checkpoint": half})
    again = {**half, "resume": str(folder)}
    last = train_with(context, {**plain, "steps": steps, "checkpoint": again})
    if whole is None:
        return None
    return {
        "whole": whole["measured"]["losses"],
        "parts": [*first["measured"]["losses"], *last["measured"]["losses"]],
    }
