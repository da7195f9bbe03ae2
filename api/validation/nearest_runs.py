"""Published measured runs nearest to a model on a cluster.

    1    for each factor of two between the parameters that a token uses
    1/2  for each factor of two between the numbers of devices
    1/2  for another model of about that size (other blocks)
    1/2  for another form of the same device (memory, bus); for another device
    1 +  the logarithm to base two between the dense 16-bit rates
    1    for another number format
    2    where one model has experts and the other has none
    2    where the run trains adapters only

Only runs with a time that ``plan simulate`` can be asked about count. Among runs equal in all of
this with the same layout, the one with most tokens a second per device stands for all.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...datasets.catalogue.device import Device, device
from ...datasets.published.runs import PublishedRun, published_runs
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.errors import InputError, NotBuiltError
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import BlockLayer, ModelSpec
from ..catalogue.layer_names import layer_name
from ..problem.model_and_cluster import cluster_of, model_of
from .published_run import SimulationArguments, simulation_arguments

DISTANCE_RULE = (
    "1 a factor of two of active parameters, 1/2 a factor of two of devices, 1/2 other blocks, "
    "1/2 another form of the device or 1 and the factor of two of its rate, 1 another number "
    "format, 2 experts or none, 2 adapters only"
)
LAYOUT = ("tp", "pp", "vpp", "cp", "ep", "shard", "micro_batch", "recompute")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFeatures:
    """Compared features of a run: sizes, devices, number format."""

    active_parameters: int
    blocks: frozenset[tuple[int, str]]
    experts: bool
    devices: int
    kinds: tuple[Device, ...]
    dtype: str
    adapters: bool = False


def run_features(
    model: ModelSpec, cluster: ClusterSpec, dtype: str, seq_len: int, adapters: bool = False
) -> RunFeatures:
    """Extract the features of a model on a cluster.

    ``seq_len`` sets the rows of a learned position table whose length the model leaves open.
    """
    return RunFeatures(
        active_parameters=model.active_param_count(seq_len),
        blocks=frozenset(
            (x.hidden, layer_name(x)) for x in model.kinds() if isinstance(x, BlockLayer)
        ),
        experts=any(experts_of(layer) is not None for layer in model.kinds()),
        devices=cluster.device_count,
        kinds=tuple(device(group.device) for group in cluster.groups),
        dtype=dtype,
        adapters=adapters,
    )


def distance(question: RunFeatures, run: RunFeatures) -> dict[str, float]:
    """Return a run's distance by part; the sum is the distance."""
    parts = {
        "active_parameters": _doublings(question.active_parameters, run.active_parameters),
        "devices": _doublings(question.devices, run.devices) / 2,
        "blocks": 0.0 if question.blocks == run.blocks else 0.5,
        "device": min(_device_distance(a, b) for a in question.kinds for b in run.kinds),
        "dtype": float(question.dtype != run.dtype),
        "experts": 2.0 * (question.experts != run.experts),
        "adapters": 2.0 * (question.adapters != run.adapters),
    }
    return {name: part for name, part in parts.items() if part}


def _doublings(one: float, other: float) -> float:
    return abs(math.log2(one / other))


def _device_distance(one: Device, other: Device) -> float:
    if one.name == other.name:
        return 0.0
    if one.family == other.family:
        return 0.5
    rates = [max(d.peak_flops_per_s.get(t, 0.0) for t in ("bf16", "fp16")) for d in (one, other)]
    return 1.0 + _doublings(rates[0], rates[1])


def nearest_runs(features: RunFeatures, count: int = 3) -> dict[str, Any]:
    """The nearest runs with their sources, and the number examined."""
    nearest = []
    for run, question, of_run in _comparable_runs():
        parts = distance(features, of_run)
        nearest.append(
            (
                sum(parts.values()),
                -_tokens_per_s_per_device(run),
                run.id,
                run,
                question,
                of_run,
                parts,
            )
        )
    nearest.sort(key=lambda item: item[:3])
    shown: dict[str, dict[str, Any]] = {}
    for total, _, _, run, question, of_run, parts in nearest:
        layout_key = json.dumps(
            [run.model, run.hardware, run.gpus, _layout(question), of_run.dtype]
        )
        if layout_key not in shown:
            if len(shown) == count:
                break
            shown[layout_key] = _row(run, question, of_run, total, parts)
    every = published_runs()
    return {
        "rule": DISTANCE_RULE,
        "rows": len(every),
        "with_a_time": sum(run.seconds is not None for run in every),
        "compared": len(nearest),
        "runs": list(shown.values()),
    }


def _tokens_per_s_per_device(run: PublishedRun) -> float:
    tokens = (run.global_batch or 0) * (run.seq or 0) / (run.gpus or 1)
    return run.tokens_per_s_per_gpu or tokens / (run.seconds or math.inf)


@cache
def _comparable_runs() -> tuple[tuple[PublishedRun, SimulationArguments, RunFeatures], ...]:
    """Runs with a time, a known model and known devices."""
    models: dict[str, ModelSpec] = {}
    comparable = []
    for run in published_runs():
        if run.seconds is None:
            continue
        try:
            question = simulation_arguments(run)
            arguments = question.arguments
            key = json.dumps(arguments["model"], sort_keys=True)
            if key not in models:
                models[key] = model_of(arguments["model"])[0]
            cluster = cluster_of(arguments["cluster"]).cluster
        except (InputError, NotBuiltError):  # a model, device or choice that has no name here
            continue
        adapters = "trainable" in arguments
        known_run = run_features(
            models[key], cluster, arguments["dtype"], arguments["seq_len"], adapters
        )
        comparable.append((run, question, known_run))
    return tuple(comparable)


def _layout(question: SimulationArguments) -> dict[str, Any]:
    return {name: question.arguments[name] for name in LAYOUT if name in question.arguments}


def _row(
    run: PublishedRun,
    question: SimulationArguments,
    of_run: RunFeatures,
    total: float,
    parts: dict[str, float],
) -> dict[str, Any]:
    return {
        "id": run.id,
        "source": run.source,
        "model": run.model,
        "active_parameters": of_run.active_parameters,
        "hardware": run.hardware,
        "devices": of_run.devices,
        "dtype": of_run.dtype,
        "layout": _layout(question),
        "assumed": [note.path for note in question.assumed],
        "global_batch": run.global_batch,
        "seq_len": run.seq,
        "step_time_s": run.seconds,
        "tokens_per_s_per_device": _tokens_per_s_per_device(run) or None,
        "mfu": run.mfu,
        "distance": total,
        "apart": parts,
    }
