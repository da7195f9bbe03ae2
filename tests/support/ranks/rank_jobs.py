"""What the ranks of the tests' pools do; each function is a job that every rank calls."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from shardwright.executor.data.records import random_batches
from shardwright.executor.engine.engine import Engine
from shardwright.executor.engine.optimizer_step import AdamWOptions, Updater
from shardwright.executor.launch.clock_sync import clock_lead_ns
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.reference.model import Reference
from shardwright.executor.stage.local_parameters import gather_full
from shardwright.executor.stage.options import BuildOptions, Compiler
from shardwright.executor.technique import RunTechniques
from shardwright.executor.techniques import SHIPPED
from shardwright.executor.tracing.recorder import LiveBytes, Recorder
from shardwright.executor.train.job import train
from shardwright.kernels.dispatch import Policy
from shardwright.spec.plan.plan import Plan, plan_of


def make_engine(
    plan: Plan,
    rank: int,
    device: torch.device,
    flash: bool = True,
    fused: bool = False,
    compiler: Compiler = "inductor",
    techniques: RunTechniques = SHIPPED,
) -> Engine:
    """This rank's part of a plan on random tokens of seed 0; ``fused`` kernels are interpreted."""
    batches = random_batches(plan, seed=0)
    kernels: Policy = "auto"
    if fused:
        from kernel_doubles import interpreter  # noqa: F401

        kernels = "fused"
    options = BuildOptions(
        seed=0,
        device=device,
        flash=flash,
        prefetch=False,
        kernels=kernels,
        compiler=compiler,
        techniques=techniques,
    )
    return Engine(plan, rank, options, batches)


def _engine(context: RankContext, payload: dict[str, Any]) -> Engine:
    plan = plan_of(payload["plan"], "plan")
    names = ("flash", "fused", "compiler")
    wanted = {name: payload[name] for name in names if name in payload}
    return make_engine(plan, context.rank, context.device, **wanted)


def record(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Kernels and collectives of the second step, counted."""
    engine = _engine(context, payload)
    try:
        return recorded_step(engine)
    finally:
        engine.close()


def recorded_step(engine: Engine) -> dict[str, Any]:
    """Kernels and collectives of the engine's second step, as (item, count) lists."""
    engine.step()
    with Recorder() as recorder:
        engine.step()
    return {
        "stage": engine.process_groups.stage,
        "kernels": [[list(k), n] for k, n in Counter(recorder.kernels).items()],
        "collectives": [[list(c), n] for c, n in Counter(recorder.collectives).items()],
    }


def collective_order(context: RankContext, payload: dict[str, Any]) -> list[str]:
    """Kinds of the second step's messages and collectives of its passes, in order."""
    engine = _engine(context, payload)
    engine.step()
    with Recorder() as recorder:
        engine.technique_hooks.begin_step()
        engine.runtime.step()
    engine.close()
    return [collective.kind for collective in recorder.collectives]


def live_bytes(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Peak of live tensor bytes from the second step on, and what lives between steps."""
    engine = _engine(context, payload)
    try:
        return traced_bytes(engine, payload.get("steps", 1))
    finally:
        engine.close()


def traced_bytes(engine: Engine, steps: int = 1) -> dict[str, Any]:
    """Peak of live tensor bytes in each of the steps after the engine's first one."""
    gc.collect()
    states = [entry.tensor for entry in engine.technique_state().values()]
    hosted = [g for p in engine.parameters if (g := p.host_gradient) is not None]
    live = LiveBytes([*engine.weight_tensors(), *states, *hosted, *_host_states(engine)])
    peaks = []
    with live, live.following_resizes():
        engine.step()
        resident = live.live_bytes
        for _ in range(steps):
            live.peak_bytes = live.live_bytes
            engine.step()
            peaks.append(live.peak_bytes)
    sizes = {"resident_bytes": resident, "host_bytes": live.host_peak_bytes}
    return {"stage": engine.process_groups.stage, "peak_bytes": peaks, **sizes}


def _host_states(engine: Engine) -> list[torch.Tensor]:
    """What the host keeps of its optimizer, which is there before the first step."""
    return [value for state in engine.updater.host.states.values() for value in state.values()]


def lead_of_clock(context: RankContext, payload: dict[str, Any]) -> int:
    """By how much a rank finds its clock ahead; some ranks play another machine's."""
    elsewhere = context.rank >= payload["from_rank"]
    ahead_ns = payload["ahead_s"] * 10**9 if elsewhere else 0
    machine = "elsewhere" if elsewhere else "here"
    return clock_lead_ns(context.device, machine, lambda: time.time_ns() + ahead_ns)


def echo(context: RankContext, payload: Any) -> Any:
    """The payload with the rank, and one event."""
    context.emit({"event": "seen", "payload": payload})
    return [context.rank, context.world_size, payload]


def chatter(context: RankContext, payload: int) -> int:
    """Prints a lot, where the control channel must not be disturbed."""
    return os.write(1, b"x" * payload) + os.write(2, b"y" * payload)


def leave(context: RankContext, payload: dict[str, Any]) -> float:
    """One rank breaks in some way while the others wait for it in a collective."""
    if context.rank == payload["rank"]:
        _break(payload["how"])
    value = torch.ones(1)
    dist.all_reduce(value)
    return value.item()


def _break(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "raise":
        raise ValueError("a deliberate mistake")
    elif how == "exit":
        os._exit(7)
    elif how == "sleep":
        time.sleep(600)


def skip(context: RankContext, payload: dict[str, Any]) -> str:
    """One rank never calls the collective and returns."""
    if context.rank == payload["rank"]:
        return "skipped"
    return str(leave(context, {"rank": -1, "how": ""}))


def train_with_a_mistake(context: RankContext, payload: dict[str, Any]) -> Any:
    """Verified training in which one gradient, or the update, is a little wrong."""
    finish, update, wrong = Updater.finish_gradients, Updater.update, payload["parameter"]

    def finish_badly(self: Updater) -> None:
        finish(self)
        for parameter in self.parameters:
            if parameter.name == wrong and parameter.grad is not None:
                parameter.grad.mul_(1.0001)

    def update_badly(self: Updater, norm: torch.Tensor, learning_rate: float) -> None:
        update(self, norm, learning_rate)
        with torch.no_grad():
            self.parameters[0].data.mul_(1.01)

    if wrong is None:
        Updater.update = update_badly  # type: ignore[method-assign]
    else:
        Updater.finish_gradients = finish_badly  # type: ignore[method-assign]
    settings = {"steps": 3, "verify": True, "random_tokens": True, "follow_bytes": False}
    try:
        return train(context, {**settings, "plan": payload["plan"]})
    finally:
        Updater.finish_gradients = finish  # type: ignore[method-assign]
        Updater.update = update  # type: ignore[method-assign]


def overflow(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Two steps in fp16, the first with one gradient of one rank too large for the format."""
    engine = _engine(context, payload)
    if engine.loss_scale is None:
        raise RuntimeError("the plan does not scale its loss")
    finish, scales = engine.updater.finish_gradients, [engine.loss_scale.value]
    skipped, moved = [], []

    def finish_badly() -> None:
        finish()
        if context.rank == 1 and engine.step_index == 0:
            grad = next(g for p in engine.parameters if (g := p.grad) is not None and g.numel())
            grad.view(-1)[0] = torch.inf

    engine.updater.finish_gradients = finish_badly  # type: ignore[method-assign]
    for _ in range(2):
        before = [p.data.clone() for p in engine.parameters]
        skipped.append(engine.step().skipped)
        moved.append(
            any(not torch.equal(a, p.data) for a, p in zip(before, engine.parameters, strict=True))
        )
        scales.append(engine.loss_scale.value)
    engine.close()
    return {"skipped": skipped, "scales": scales, "moved": moved}


def train_fused(context: RankContext, payload: dict[str, Any]) -> Any:
    """Training with the fused kernels, interpreted."""
    from kernel_doubles import interpreter  # noqa: F401

    return train(context, {**payload, "kernels": "fused"})


def norms(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Gradient norms of some steps beside the reference's, and the weights afterwards."""
    engine = _engine(context, payload)
    plan, reference_norms = engine.plan, []
    found = [engine.step().gradient_norm for _ in range(payload["steps"])]
    weights = {
        p.name: gather_full(p, p.data, engine.process_groups).clone() for p in engine.parameters
    }
    engine.close()
    if context.rank:
        return {}
    reference = Reference(plan, 0, context.device, engine.batch, torch.float32, AdamWOptions())
    for _ in range(payload["steps"]):
        reference.backward_step()
        squares = [g.double().square().sum() for g in reference.gradients().values()]
        reference_norms.append(float(torch.stack(squares).sum().sqrt()))
        reference.update()
    expected = {name: p.detach() for name, p in reference.parameters.items()}
    off = [float((w - expected[reference.name_of(n)]).abs().max()) for n, w in weights.items()]
    return {"norms": found, "reference_norms": reference_norms, "weight_difference": max(off)}
