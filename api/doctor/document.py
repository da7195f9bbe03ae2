"""``plan doctor``: measured, learned and assumed figures as a document.

Figures are those that prices read; the catalogue derives each one's kind from its source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ...costmodel.kernel_latency.device_latency import DeviceLatency
from ...costmodel.lowering.plan_lowering import Lowering
from ...datasets.catalogue.device import CPU, device
from ...datasets.catalogue.source_kind import KINDS
from ...datasets.models.load import DEFAULT_MODEL
from ...planner.solve.problem import Problem
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.learned_residual import KernelGroup, LearnedResidual
from ...spec.cluster.measured import calibration_of, profile_of
from ...spec.errors import InputError
from ...spec.huggingface.config import ModelAndAssumptions
from ...spec.model.model_spec import ModelSpec
from ...spec.report.report import Assumption
from ...spec.report.work_items import SCANS
from ...spec.rules.executable import unsupported_model
from ...spec.strategy import LayerStrategy
from ..catalogue.clusters import level_rows
from ..catalogue.models import model_kind
from ..problem.model_and_cluster import ClusterLike, ModelLike, cluster_of, model_of
from ..problem.resolve import Inputs, resolve
from ..problem.stored_calibrations import measured_name
from ..problem.this_machine import require_devices
from ..problem.workload_size import DEFAULT_SEQ_LEN, USUAL_BATCH, usual_seq_len
from ..validation.nearest_runs import nearest_runs, run_features
from .figures import Figure, priced_figures
from .layers import layer_support_rows
from .price_sources import price_rows

GROUP_WORDS: Mapping[KernelGroup, str] = {
    "product": "products",
    "attention": "attention",
    "scan": "scans",
    "pass": "passes over memory",
}
ALL_KINDS = (*KINDS, "typed")


def doctor_document(
    model: ModelLike | None = None,
    cluster: ClusterLike | None = None,
    stack: str | None = None,
    calibration: str | None = None,
) -> dict[str, Any]:
    """Describe the basis of predictions for a model and a cluster.

    Args:
        model: as ``--model``; None: the embedded default.
        cluster: as ``--cluster``; None: this machine.
        stack: as ``--stack``.
        calibration: as ``--calibration``.

    Raises:
        InputError: no usable model, cluster or stack.
    """
    problem = _problem(model, cluster, stack, calibration)
    seq_len = problem.workload.seq_len
    lowering = Lowering(problem.model, problem.workload, problem.stack)
    layers, prices = layer_support_rows(lowering), price_rows(problem, lowering)
    figures = _figures(problem, lowering)
    features = run_features(
        problem.model, problem.cluster, problem.workload.dtype.shorthand, seq_len
    )
    return {
        "model": _model(problem.model, seq_len, layers),
        "cluster": {
            "text": problem.expansion,
            "devices": problem.cluster.device_count,
            "levels": level_rows(problem.cluster),
            "here": _here_reason(problem.cluster),
        },
        "workload": {
            "seq_len": seq_len,
            "micro_batch": 1,
            "dtype": problem.workload.dtype.shorthand,
            "optimizer": problem.workload.optimizer,
        },
        "stack": f"{problem.stack.name} {problem.stack.version}",
        "figures": {
            "count": len(figures),
            "kinds": _counts(figures),
            "by_part": _counts_by_part(figures),
            "rows": [asdict(figure) for figure in figures],
        },
        "prices": prices,
        "calibration": _calibration(problem, calibration),
        "learned": _learned(problem),
        "assumptions": [asdict(note) for note in problem.assumptions],
        "nearest": nearest_runs(features),
    }


def _learned(problem: Problem) -> str:
    rests = {
        group.device: DeviceLatency(device(group.device), problem.stack.flash_generation).rests_on
        for group in problem.cluster.groups
    }
    words = [f"{name}: {text}" for name, text in rests.items()]
    profile = profile_of(problem.measured)
    if profile is not None and profile.residual is not None:
        words.append(_refitted(profile.residual))
    return "; ".join(words)


def _refitted(residual: LearnedResidual) -> str:
    groups = ", ".join(GROUP_WORDS[group] for group in residual.prices) or "nothing that was timed"
    return (
        f"learned here: {groups} priced by a residual refitted to {len(residual.points)} programs, "
        f"off by {residual.error:.0%} where they were left out (80 % within "
        f"{residual.half_width:.0%})"
    )


def _problem(
    model: ModelLike | None,
    cluster: ClusterLike | None,
    stack: str | None,
    calibration: str | None,
) -> Problem:
    """The pair with the usual workload."""
    spec, model_notes = _model_first(DEFAULT_MODEL if model is None else model, cluster)
    parsed = cluster_of("local" if cluster is None else cluster, "C")
    notes = [*parsed.assumptions, *model_notes]
    for name, typed, value in (("cluster", cluster, parsed.expansion), ("model", model, spec.name)):
        if typed is None:
            usual = "the embedded default" if name == "model" else "this machine"
            notes.insert(0, Assumption(path=name, value=value, why=f"not given; {usual}"))
    seq_len = usual_seq_len(spec) if model is not None else DEFAULT_SEQ_LEN
    why = "what prices are shown at: the usual length, within the model's positions"
    notes.append(Assumption(path="workload.seq_len", value=seq_len, why=why))
    inputs = Inputs(
        model=spec,
        cluster=parsed.cluster,
        global_batch=USUAL_BATCH,
        seq_len=seq_len,
        stack=stack,
        calibration=calibration,
    )
    problem = resolve(inputs)
    every = (*notes, *problem.assumptions)
    return replace(problem, assumptions=every, expansion=parsed.expansion)


def _model_first(model: ModelLike, cluster: ClusterLike | None) -> ModelAndAssumptions:
    try:
        return model_of(model, "M")
    except InputError:
        if isinstance(model, str) and _is_cluster(model):
            first = cluster if isinstance(cluster, str) else DEFAULT_MODEL
            allowed, near = "a model, and a cluster after it", f"plan doctor {first} {model}"
            raise InputError("M", model, allowed, near) from None
        raise


def _is_cluster(text: str) -> bool:
    try:
        cluster_of(text)
    except InputError:
        return False
    return True


def _figures(problem: Problem, lowering: Lowering) -> tuple[Figure, ...]:
    dtype = problem.workload.dtype
    indices = [lowering.kinds.index(kind) for kind in dict.fromkeys(lowering.kinds)]
    lowered = [lowering.layer(index, LayerStrategy(), None, 1, 1) for index in indices]
    kernels = [kernel for layer in lowered for kernel in layer.forward.kernels()]
    scans = any(kernel.op in SCANS for kernel in kernels)
    return priced_figures(problem.cluster, problem.stack, (dtype.param, dtype.master), scans)


def _model(model: ModelSpec, seq_len: int, layers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": model.name,
        "kind": model_kind(model),
        "parameters": model.param_count(seq_len),
        "active_parameters": model.active_param_count(seq_len),
        "layers": layers,
        "run": unsupported_model(model, seq_len),
    }


def _here_reason(cluster: ClusterSpec) -> str | None:
    try:
        require_devices(cluster, "C")
    except InputError as error:
        return f"{error.given} asked; {error.allowed}"
    return None


def _counts(figures: Iterable[Figure]) -> dict[str, int]:
    counted = Counter(figure.kind for figure in figures)
    return {kind: counted[kind] for kind in ALL_KINDS}


def _counts_by_part(figures: tuple[Figure, ...]) -> list[dict[str, Any]]:
    names = dict.fromkeys((figure.part, figure.of) for figure in figures)
    return [
        {
            "part": part,
            "of": of,
            "kinds": _counts(f for f in figures if (f.part, f.of) == (part, of)),
        }
        for part, of in names
    ]


def _calibration(problem: Problem, requested: str | None) -> dict[str, Any]:
    """The calibration or profile behind the prices."""
    if (calibration := calibration_of(problem.measured)) is not None:
        return {
            "name": measured_name(problem.measured),
            "factors": asdict(calibration.factors),
            "fitted_on": list(calibration.fitted_on),
        }
    profile = profile_of(problem.measured)
    if profile is None:
        return {"name": "none", "why": _no_profile_reason(problem.cluster, requested)}
    document: dict[str, Any] = {
        "name": f"profile {profile.fingerprint}",
        "measured_at": profile.measured_at,
        "ranks": profile.ranks,
        "kernels": len(profile.kernels),
        "collectives": len(profile.collectives),
        "host_s": dict(sorted(profile.host_s.items())),
    }
    if (residual := profile.residual) is not None:
        names = ("groups", "prices", "error", "half_width")
        kept = {name: getattr(residual, name) for name in names}
        document["residual"] = {"programs": len(residual.points), **kept}
    if profile.device == CPU:
        return document
    return {
        **document,
        "device": profile.device,
        "machine": profile.machine,
        "copies": len(profile.copies),
        "overlap_slowdown": profile.overlap_slowdown,
        "skipped": len(profile.skipped),
    }


def _no_profile_reason(cluster: ClusterSpec, requested: str | None) -> str:
    if requested == "none":
        return "none was asked for"
    if len(cluster.groups) > 1:
        return "profiles are of one kind of device (plan profile)"
    group = cluster.groups[0]
    if group.device != CPU:
        what = f"{group.devices_per_node}x{group.device}"
        return f"no profile of {what} on this machine (plan profile --cluster {what})"
    ranks = cluster.device_count
    return f"this machine was not measured with {ranks} ranks at work (plan profile)"
