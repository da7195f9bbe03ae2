"""Jobs of ranks for the tests of techniques."""

from __future__ import annotations

from typing import Any

import torch
from ranks.rank_jobs import make_engine, recorded_step, traced_bytes
from toys.census_run import RUNS as CENSUS
from toys.programs.averaging_run import RUNS as AVERAGING
from toys.programs.signs_run import RUNS as SIGNS
from toys.rounding_run import RUNS as ROUNDING

from shardwright.executor.engine.engine import Engine
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.stage.chunk import Chunk
from shardwright.executor.technique import RunTechniques
from shardwright.executor.techniques import SHIPPED
from shardwright.executor.train.job import train
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import plan_of


def techniques_of(name: str) -> RunTechniques:
    """A toy's techniques; the shipped ones for any other name."""
    toys = {"gradient_census": CENSUS, "rounded_inputs": ROUNDING}
    toys |= {"averaged_weights": AVERAGING, "sign_updates": SIGNS}
    return toys.get(name, SHIPPED)


def engine_of(context: RankContext, payload: dict[str, Any]) -> Engine:
    """This rank's part of a plan that holds a technique."""
    techniques = techniques_of(payload["technique"])
    plan = plan_of(payload["plan"], "plan", techniques.values)
    names = ("flash", "compiler")
    wanted = {name: payload[name] for name in names if name in payload}
    return make_engine(plan, context.rank, context.device, techniques=techniques, **wanted)


def record(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Kernels and collectives of a step, counted; live bytes where they are ``followed``."""
    engine = engine_of(context, payload)
    try:
        followed = traced_bytes(engine) if payload.get("followed") else {}
        return {**followed, **recorded_step(engine)}
    finally:
        engine.close()


def states(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """States after some steps; after they were put into a new engine; and two steps later in both.

    Also the squares of the gradients that every layer had in the first step, counted apart.
    """
    engine = engine_of(context, payload)
    squares: dict[str, float] = {}

    def look() -> None:
        for part in engine.parameters:
            if engine.step_index == 0 and part.grad is not None:
                own = float(part.grad.double().square().sum())
                squares[str(part.layer)] = squares.get(str(part.layer), 0.0) + own

    losses = [engine.step(look).loss for _ in range(payload["steps"])]
    saved = {name: entry.tensor.clone() for name, entry in engine.technique_state().items()}
    placements = {name: e.placement.kind for name, e in engine.technique_state().items()}
    engine.close()
    again = engine_of(context, payload)
    empty = listed(again)
    refusals = _refusals(again, saved)
    again.load_technique_state(saved)
    loaded = listed(again)
    again.close()
    return {
        "stage": again.process_groups.stage,
        "squares": squares,
        "losses": losses,
        "saved": {name: value.tolist() for name, value in saved.items()},
        "placements": placements,
        "empty": empty,
        "loaded": loaded,
        "refusals": refusals,
    }


def listed(engine: Engine) -> dict[str, Any]:
    """The states of techniques as numbers."""
    return {name: entry.tensor.tolist() for name, entry in engine.technique_state().items()}


def _refusals(engine: Engine, saved: dict[str, torch.Tensor]) -> list[str]:
    """Refusals of missing, unknown and misshapen states."""
    first = min(saved, default=None)
    if first is None:
        return []
    without = {name: value for name, value in saved.items() if name != first}
    longer = {**saved, first: saved[first].new_zeros(saved[first].numel() + 1)}
    found = []
    for wrong in (without, {**saved, "nobody.state": saved[first]}, longer):
        try:
            engine.load_technique_state(wrong)
        except InputError as error:
            found.append(str(error))
    return found


def train_with(context: RankContext, payload: dict[str, Any]) -> Any:
    """Training as ``plan execute`` does it, with a technique."""
    wanted = {name: value for name, value in payload.items() if name != "technique"}
    return train(context, wanted, techniques_of(payload["technique"]))


def copies(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Copies of host weights on the device, after a step and after a restart.

    ``equal``, ``apart``, or ``freed`` where the device has none.
    """
    engine = engine_of(context, payload)
    try:
        before = [p.data.clone() for p in engine.parameters]
        engine.step()
        pairs = zip(before, engine.parameters, strict=True)
        moved = all(not torch.equal(a, p.data) for a, p in pairs if a.numel())
        stepped = standing(engine)
        with torch.no_grad():
            for parameter in engine.parameters:
                parameter.data.mul_(0.5)
        engine.weights_changed()
        own = [p.name for p in engine.parameters if p.layer == 2]
        return {"stepped": stepped, "put_back": standing(engine), "moved": moved, "layer 2": own}
    finally:
        engine.close()


def copied_in_backward(context: RankContext, payload: dict[str, Any]) -> list[int]:
    """Layers whose gradients are on the host before the backward of their chunk ends."""
    engine = engine_of(context, payload)
    found: set[int] = set()
    try:
        for chunk in engine.chunks:
            _note_copies(engine, chunk, found)
        engine.step()
        return sorted(found)
    finally:
        engine.close()


def _note_copies(engine: Engine, chunk: Chunk, found: set[int]) -> None:
    """Before a chunk's hooks run, compare its gradients with the host's."""
    after_backward = chunk.after_backward

    def compared(reads: bool, last: bool) -> None:
        own = {
            (p.layer, p.grad is not None and torch.equal(p.grad, p.host_gradient))
            for p in engine.parameters
            if last and p.host_gradient is not None and p.layer in chunk.strategies
            if p.data.numel() and not p.partial_gradient
        }
        found.update(layer for layer, same in own if same and (layer, False) not in own)
        after_backward(reads, last)

    chunk.after_backward = compared  # type: ignore[method-assign]


def standing(engine: Engine) -> dict[str, str]:
    """Each weight of the host beside the device's."""
    found = {}
    for parameter in engine.parameters:
        if (device := parameter.device_tensor) is not None:
            freed = device.untyped_storage().nbytes() == 0
            same = not freed and torch.equal(device, parameter.data)
            found[parameter.name] = "freed" if freed else "equal" if same else "apart"
    return found
