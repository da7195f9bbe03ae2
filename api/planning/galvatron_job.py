"""A problem as a job of Galvatron's cost model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...costmodel.galvatron.job import MB, GalvatronJob
from ...costmodel.galvatron.layer_memory import STATES
from ...datasets.galvatron.profile import GalvatronProfile
from ...datasets.galvatron.read import read_profile
from ...planner.solve.problem import Problem
from ...spec.errors import InputError
from ...spec.model.layer_parameters import layer_elements
from ...spec.model.model_spec import BlockLayer, ModelSpec, MultiTokenLayer

SAME_TYPE_WITHIN, PROFILE_LAYER_WITHIN, PROFILE_HEADS_WITHIN = 0.01, 0.03, 0.1
"""Relative differences in parameters up to which neighboring blocks are one type of layer, and
up to which a profile's layer, and its embedding and head, are taken to be the model's."""
FORMATS = ("bf16", "fp16", "fp32")
OPTIMIZERS = ("adamw", "adam")


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronLayerType:
    """Neighboring blocks that Galvatron measures as one layer type."""

    count: int
    hidden: int
    seq_len: int
    parameters: int


def galvatron_job(problem: Problem, folder: str | Path) -> GalvatronJob:
    """The job of a problem under the profile in a folder.

    Raises:
        InputError: a problem that the costs do not cover, or another model's profile.
    """
    _refuse_other_training(problem)
    group = problem.cluster.groups[0]
    if len(problem.cluster.groups) > 1 or group.device_count & (group.device_count - 1):
        description = (
            f"{problem.cluster.device_count} devices in {len(problem.cluster.groups)} groups"
        )
        allowed = "one group of 2, 4, 8, … devices under Galvatron's costs"
        raise InputError("--cluster", description, allowed, "--costs ours")
    types = layer_types(problem.model, problem.workload.seq_len)
    dtype = problem.workload.dtype.param
    profile = read_profile(
        folder,
        problem.model.name,
        dtype,
        tuple(kind.seq_len for kind in types),
        group.nodes,
        group.devices_per_node,
    )
    _refuse_other_model(problem, types, profile)
    return GalvatronJob(
        profile=profile,
        layers=tuple(kind.count for kind in types),
        hidden=tuple(kind.hidden for kind in types),
        seq_lens=tuple(kind.seq_len for kind in types),
        devices=group.device_count,
        global_batch=problem.workload.global_batch,
        half=dtype != "fp32",
    )


def _refuse_other_model(
    problem: Problem, types: list[GalvatronLayerType], profile: GalvatronProfile
) -> None:
    """Refuse a profile whose layers differ in size from the model's."""
    memory = profile.files[1]
    for number, (kind, layer) in enumerate(zip(types, profile.model.layers, strict=True)):
        key = f"{memory}: layertype_{number}_sp: parameter_size"
        _refuse_size(
            key, layer.parameter_mb, kind.parameters * 4 / MB, PROFILE_LAYER_WITHIN, problem
        )
    whole = profile.model.together.states_mb.get(1)
    blocks = sum(kind.count * kind.parameters for kind in types)
    ends = problem.model.param_count(problem.workload.seq_len) - blocks
    if whole is not None:
        key = f"{memory}: other_memory_pp_off_sp: model_states: 1"
        _refuse_size(key, whole, ends * 4 * STATES / MB, PROFILE_HEADS_WITHIN, problem)


def _refuse_size(key: str, given_mb: float, own_mb: float, within: float, problem: Problem) -> None:
    if abs(given_mb / own_mb - 1) > within:
        allowed = f"about the {own_mb:.0f} MB of {problem.model.name}"
        raise InputError(key, given_mb, allowed)


def layer_types(model: ModelSpec, seq_len: int) -> list[GalvatronLayerType]:
    """Layer types of a model's blocks, in order.

    Neighbors of one tower and about one size share a type.

    Raises:
        InputError: a model with layers unknown to Galvatron.
    """
    types: list[GalvatronLayerType] = []
    for tower in model.towers:
        tokens, first = tower.seq_len or seq_len, True
        for run in tower.layers:
            if isinstance(run.layer, MultiTokenLayer):
                description = f"{model.name} with multi-token heads"
                raise InputError("--model", description, "a model without under Galvatron's costs")
            if not isinstance(run.layer, BlockLayer):
                continue
            size = layer_elements(run.layer, tokens)
            last = types[-1] if types else None
            count = run.count
            if last and not first and abs(last.parameters - size) <= SAME_TYPE_WITHIN * size:
                types.pop()
                count += last.count
            types.append(
                GalvatronLayerType(
                    count=count, hidden=run.layer.hidden, seq_len=tokens, parameters=size
                )
            )
            first = False
    return types


def _refuse_other_training(problem: Problem) -> None:
    workload = problem.workload
    near = "--costs ours"
    if workload.dtype.shorthand not in FORMATS:
        allowed = f"{', '.join(FORMATS)} under Galvatron's costs"
        raise InputError("--dtype", workload.dtype.shorthand, allowed, near)
    if workload.optimizer not in OPTIMIZERS:
        allowed = f"{' or '.join(OPTIMIZERS)}, whose states its profiles hold"
        raise InputError("--optimizer", workload.optimizer, allowed, near)
    if workload.trainable != "full" or workload.frozen:
        raise InputError("--trainable", "a part of the model", "full under its costs", near)
