"""Complete state of a run, collected from and restored into an engine.

Master weights, optimizer moments and counts, every rank's random generators, technique states.
Names are the whole model's under any plan; a tied weight has one. The position in the text follows
from the step count in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...spec.errors import InputError
from ..engine.engine import Engine
from ..stage.local_parameters import LocalParameter
from .manifest import Manifest
from .tensor_offsets import REPLICA, parameter_slice, replica_name, saved_name, state_slice
from .tensor_slices import TensorSlice, dtype_of

MODEL, OPTIMIZER, RANDOM, TECHNIQUES = "model.", "optimizer.", "random.", "techniques."
LOSS_SCALE = "loss_scale"


def collect_state(engine: Engine) -> dict[str, TensorSlice]:
    """This rank's part of a checkpoint, sharing the engine's storage."""
    slices: dict[str, TensorSlice] = {}
    for local in engine.parameters:
        if not local.in_norm or not local.data.numel():
            continue  # the other copy of a tied weight is saved; nothing is left of a short row
        name = replica_name(saved_name(engine.plan, local), local, engine.process_groups)
        tensor_slice = parameter_slice(local, engine.process_groups)
        slices[MODEL + name] = tensor_slice
        for key, value in engine.updater.optimizer_state(local).items():
            state_part = (
                tensor_slice.with_tensor(value) if value.dim() else TensorSlice.unsplit(value)
            )
            slices[f"{OPTIMIZER}{key}.{name}"] = state_part
    for key, value in _random_states(engine).items():
        slices[key] = TensorSlice.unsplit(value)
    if engine.loss_scale is not None:
        slices[LOSS_SCALE] = TensorSlice.unsplit(engine.loss_scale.to_tensor())
    parameters = _local_by_name(engine)
    for key, state in engine.technique_state().items():
        if state.tensor.numel():
            name, tensor_slice = state_slice(
                TECHNIQUES + key, state, engine.process_groups, parameters
            )
            slices[name] = tensor_slice
    return slices


def _local_by_name(engine: Engine) -> dict[str, LocalParameter]:
    return {local.name: local for local in engine.parameters}


def _random_states(engine: Engine) -> dict[str, Tensor]:
    rank, device = engine.process_groups.rank, engine.options.device
    states = {f"{RANDOM}cpu.{rank}": torch.get_rng_state()}
    if device.type == "cuda":
        states[f"{RANDOM}cuda.{rank}"] = torch.cuda.get_rng_state(device)
    return states


class EngineRestore:
    """Slices of a checkpoint that an engine needs, filled and then applied.

    ``fill_rounds``: slices by name; a rank with both copies of a tied weight needs two rounds.

    Args:
        engine: not yet stepped.
        with_random: False to leave the random states that the run has.

    Raises:
        InputError: the checkpoint lacks a tensor, or has it in another form.
    """

    def __init__(self, engine: Engine, manifest: Manifest, with_random: bool = True) -> None:
        self.engine, self.manifest = engine, manifest
        self.fill_rounds: list[dict[str, TensorSlice]] = []
        self._moments: list[tuple[LocalParameter, dict[str, Tensor]]] = []
        self._random: dict[str, Tensor] = {}
        self._states: dict[str, Tensor] = {}
        self._keys = sorted(_optimizer_keys(manifest))
        self._of_replicas = {n.partition(REPLICA)[0] for n in manifest.tensors if REPLICA in n}
        for local in engine.parameters:
            if local.data.numel():
                self._want_parameter(local)
        for name, value in _random_states(engine).items():
            if with_random and name in manifest.tensors:
                self._random[name] = torch.empty_like(value)
                self._want(name, TensorSlice.unsplit(self._random[name]))
        self._scale: Tensor | None = None
        if engine.loss_scale is not None:
            self._scale = engine.loss_scale.to_tensor()
            self._want(LOSS_SCALE, TensorSlice.unsplit(self._scale))
        self._want_states()

    def _want(self, name: str, tensor_slice: TensorSlice) -> None:
        stored = self.manifest.tensors.get(name)
        if stored is None:
            raise InputError("--resume", f"no {name} in it", "a checkpoint of this plan's model")
        form = (stored.shape, dtype_of(stored.dtype))
        if form != (tensor_slice.full_shape, tensor_slice.tensor.dtype):
            stored_form = f"{name} as {stored.dtype} of shape {list(stored.shape)}"
            allowed = f"{tensor_slice.tensor.dtype} of shape {list(tensor_slice.full_shape)}"
            raise InputError("--resume", stored_form, allowed)
        round_ = next((r for r in self.fill_rounds if name not in r), None)
        if round_ is None:
            self.fill_rounds.append(round_ := {})
        round_[name] = tensor_slice

    def _want_parameter(self, local: LocalParameter) -> None:
        name = self._stored_name(local)
        tensor_slice = parameter_slice(local, self.engine.process_groups)
        self._want(MODEL + name, tensor_slice)
        optimizer_state: dict[str, Tensor] = {}
        for key in self._keys:
            stored = self.manifest.tensors.get(f"{OPTIMIZER}{key}.{name}")
            if stored is None:
                continue
            template = local.data if stored.shape else torch.empty(())
            optimizer_state[key] = torch.empty_like(template, dtype=dtype_of(stored.dtype))
            state_part = (
                tensor_slice.with_tensor(optimizer_state[key])
                if stored.shape
                else TensorSlice.unsplit(optimizer_state[key])
            )
            self._want(f"{OPTIMIZER}{key}.{name}", state_part)
        self._moments.append((local, optimizer_state))

    def _stored_name(self, local: LocalParameter) -> str:
        """A parameter's name in the checkpoint: of its own replica if it has weights of each."""
        engine, manifest = self.engine, self.manifest
        whole = saved_name(engine.plan, local)
        if MODEL + whole not in self._of_replicas:
            return whole
        if manifest.run.plan != engine.plan.hash:
            allowed = "the plan that it was saved under: each replica has weights of its own"
            raise InputError("--resume", f"{whole} under another plan", allowed)
        return replica_name(whole, local, engine.process_groups)

    def _want_states(self) -> None:
        same_plan = self.manifest.run.plan == self.engine.plan.hash
        parameters = _local_by_name(self.engine)
        for key, state in self.engine.technique_state().items():
            empty = torch.empty_like(state.tensor)
            self._states[key] = empty
            if not empty.numel():
                continue
            name, tensor_slice = state_slice(
                TECHNIQUES + key, state, self.engine.process_groups, parameters
            )
            if state.placement.kind == "own" and not same_plan:
                allowed = "the plan that it was saved under: each rank has a state of its own"
                raise InputError("--resume", f"{key} under another plan", allowed)
            self._want(name, tensor_slice.with_tensor(empty))

    def unused(self) -> Iterator[str]:
        """Techniques with states in the checkpoint but not in this plan."""
        restored = {key.partition(".")[0] for key in self._states}
        saved = {
            name.removeprefix(TECHNIQUES).partition(".")[0]
            for name in self.manifest.tensors
            if name.startswith(TECHNIQUES)
        }
        yield from sorted(saved - restored - {*self.engine.technique_hooks.names})

    def apply(self) -> None:
        """Continue from the filled slices."""
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
    return {
        name.removeprefix(OPTIMIZER).partition(".")[0]
        for name in manifest.tensors
        if name.startswith(OPTIMIZER)
    }
