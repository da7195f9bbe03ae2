"""Everything that a run goes on from, out of an engine and back into one.

Master weights, the optimizer's moments and counts, the random generators of every rank, and what
techniques keep. Names are those of the whole model, whatever the plan; a tied weight has one.
Where a run reads on in its text follows from the number of steps, which the manifest has.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...spec.errors import InputError
from ..engine.engine import Engine
from ..stage.local_parameters import LocalParameter
from .manifest import Manifest
from .tensor_offsets import parameter_slice, saved_name, state_slice
from .tensor_slices import TensorSlice, dtype_of

MODEL, OPTIMIZER, RANDOM, TECHNIQUES = "model.", "optimizer.", "random.", "techniques."
LOSS_SCALE = "loss_scale"


def collect_state(engine: Engine) -> dict[str, TensorSlice]:
    """What this rank has of a checkpoint, sharing the engine's storage."""
    found: dict[str, TensorSlice] = {}
    for local in engine.parameters:
        if not local.in_norm or not local.data.numel():
            continue  # the other copy of a tied weight is saved; nothing is left of a short row
        name, part = saved_name(engine.plan, local), parameter_slice(local, engine.process_groups)
        found[MODEL + name] = part
        for key, value in engine.updater.optimizer_state(local).items():
            cut = part.like(value) if value.dim() else TensorSlice.unsplit(value)
            found[f"{OPTIMIZER}{key}.{name}"] = cut
    for key, value in _random_states(engine).items():
        found[key] = TensorSlice.unsplit(value)
    if engine.loss_scale is not None:
        found[LOSS_SCALE] = TensorSlice.unsplit(engine.loss_scale.to_tensor())
    own = _own(engine)
    for key, state in engine.technique_state().items():
        if state.tensor.numel():
            name, part = state_slice(TECHNIQUES + key, state, engine.process_groups, own)
            found[name] = part
    return found


def _own(engine: Engine) -> dict[str, LocalParameter]:
    return {local.name: local for local in engine.parameters}


def _random_states(engine: Engine) -> dict[str, Tensor]:
    """The states of this rank's generators."""
    rank, device = engine.process_groups.rank, engine.options.device
    found = {f"{RANDOM}cpu.{rank}": torch.get_rng_state()}
    if device.type == "cuda":
        found[f"{RANDOM}cuda.{rank}"] = torch.cuda.get_rng_state(device)
    return found


class EngineRestore:
    """The parts of a checkpoint that an engine wants, to be filled and then taken over.

    ``rounds``: parts by name; a rank that holds both copies of a tied weight wants it twice.

    Args:
        engine: not yet stepped.
        manifest: of the checkpoint.

    Raises:
        InputError: the checkpoint lacks a tensor, or has it in another form.
    """

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self.engine, self.manifest = engine, manifest
        self.rounds: list[dict[str, TensorSlice]] = []
        self._moments: list[tuple[LocalParameter, dict[str, Tensor]]] = []
        self._random: dict[str, Tensor] = {}
        self._states: dict[str, Tensor] = {}
        self._keys = sorted(_optimizer_keys(manifest))
        for local in engine.parameters:
            if local.data.numel():
                self._want_parameter(local)
        for name, value in _random_states(engine).items():
            if name in manifest.tensors:
                self._random[name] = torch.empty_like(value)
                self._want(name, TensorSlice.unsplit(self._random[name]))
        self._scale: Tensor | None = None
        if engine.loss_scale is not None:
            self._scale = engine.loss_scale.to_tensor()
            self._want(LOSS_SCALE, TensorSlice.unsplit(self._scale))
        self._want_states()

    def _want(self, name: str, part: TensorSlice) -> None:
        stored = self.manifest.tensors.get(name)
        if stored is None:
            raise InputError("--resume", f"no {name} in it", "a checkpoint of this plan's model")
        form = (stored.shape, dtype_of(stored.dtype))
        if form != (part.full_shape, part.tensor.dtype):
            given = f"{name} as {stored.dtype} of shape {list(stored.shape)}"
            allowed = f"{part.tensor.dtype} of shape {list(part.full_shape)}"
            raise InputError("--resume", given, allowed)
        fresh = next((given for given in self.rounds if name not in given), None)
        if fresh is None:
            self.rounds.append(fresh := {})
        fresh[name] = part

    def _want_parameter(self, local: LocalParameter) -> None:
        name = saved_name(self.engine.plan, local)
        part = parameter_slice(local, self.engine.process_groups)
        self._want(MODEL + name, part)
        optimizer_state: dict[str, Tensor] = {}
        for key in self._keys:
            stored = self.manifest.tensors.get(f"{OPTIMIZER}{key}.{name}")
            if stored is None:
                continue
            like = local.data if stored.shape else torch.empty(())
            optimizer_state[key] = torch.empty_like(like, dtype=dtype_of(stored.dtype))
            cut = (
                part.like(optimizer_state[key])
                if stored.shape
                else TensorSlice.unsplit(optimizer_state[key])
            )
            self._want(f"{OPTIMIZER}{key}.{name}", cut)
        self._moments.append((local, optimizer_state))

    def _want_states(self) -> None:
        same_plan = self.manifest.run.plan == self.engine.plan.hash
        own = _own(self.engine)
        for key, state in self.engine.technique_state().items():
            fresh = torch.empty_like(state.tensor)
            self._states[key] = fresh
            if not fresh.numel():
                continue
            name, part = state_slice(TECHNIQUES + key, state, self.engine.process_groups, own)
            if state.placement.kind == "own" and not same_plan:
                allowed = "the plan that it was saved under: each rank has a state of its own"
                raise InputError("--resume", f"{key} under another plan", allowed)
            self._want(name, part.like(fresh))

    def unused(self) -> Iterator[str]:
        """Techniques whose states are in the checkpoint and which this plan does not hold."""
        wanted = {key.partition(".")[0] for key in self._states}
        saved = {
            name.removeprefix(TECHNIQUES).partition(".")[0]
            for name in self.manifest.tensors
            if name.startswith(TECHNIQUES)
        }
        yield from sorted(saved - wanted - {*self.engine.technique_hooks.names})

    def apply(self) -> None:
        """Go on from what the parts were filled with."""
        engine = self.engine
        for local, optimizer_state in self._moments:
            if optimizer_state:
                engine.updater.load_optimizer_state(local, optimizer_state)
        for name, value in self._random.items():
            if name.startswith(f"{RANDOM}cpu."):
                torch.set_rng_state(value)
            else:
                torch.cuda.set_rng_state(value, engine.options.device)
        if engine.loss_scale is not None and self._scale is not None:
            engine.loss_scale.take(self._scale)
        engine.load_technique_state(self._states)
        engine.weights_changed()
        engine.step_index = self.manifest.step


def _optimizer_keys(manifest: Manifest) -> set[str]:
    """What the optimizer keeps of a parameter, by the names of the tensors."""
    return {
        name.removeprefix(OPTIMIZER).partition(".")[0]
        for name in manifest.tensors
        if name.startswith(OPTIMIZER)
    }
