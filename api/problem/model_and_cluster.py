"""Models and clusters from texts, typed documents, or objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...costmodel.simulation.simulator import max_microbatches
from ...datasets.catalogue.device import device
from ...datasets.catalogue.device_formats import require_dtype, require_format
from ...datasets.clusters.check import check_cluster
from ...datasets.clusters.file import cluster_from_keys, is_spec
from ...datasets.clusters.parse import parse_cluster
from ...datasets.clusters.parsed_cluster import ParsedCluster, expansion
from ...datasets.models.load import checked_model, load_model
from ...datasets.models.typed_model import model_from_keys
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.codec import from_document
from ...spec.errors import InputError
from ...spec.finite_numbers import refuse_non_finite
from ...spec.huggingface.config import (
    ModelAndAssumptions,
    config_document,
    model_from_config,
)
from ...spec.limits import MAX_LAYERS
from ...spec.model.model_spec import ModelSpec
from ...spec.plan.plan import Plan

ModelLike = str | Mapping[str, Any] | ModelSpec
ClusterLike = str | Mapping[str, Any] | ClusterSpec


def model_of(source: ModelLike, where: str = "--model") -> ModelAndAssumptions:
    """Resolve a model, with its assumptions.

    Args:
        source: a name or path, a typed or Hugging Face document, a configuration object of
            transformers, or a ModelSpec.
        where: its name in an error.

    Raises:
        InputError: no usable model, or one of more than 16384 layers.
    """
    if isinstance(source, ModelSpec):
        model: ModelAndAssumptions = (source, ())
    elif isinstance(source, Mapping):
        model = _model_from_document(source, where)
    elif (document := config_document(source)) is not None:
        model = model_from_config(document, str(document.get("model_type")), where)
    elif isinstance(source, str):
        model = load_model(source, where)
    else:
        raise InputError(
            where, type(source).__name__, "a name, a document, a configuration or a ModelSpec"
        )
    check_model(model[0], where)
    return model


def _model_from_document(document: Mapping[str, Any], where: str) -> ModelAndAssumptions:
    refuse_non_finite(document, where)
    if "towers" in document:
        return from_document(ModelSpec, document, where), ()
    if "model_type" in document or "hidden_size" in document:
        return model_from_config(document, "model", where)
    return model_from_keys(document, "model", where)


def check_model(model: ModelSpec, where: str) -> None:
    """Refuse a model of an unsupported shape or depth.

    Raises:
        InputError: the first problem found.
    """
    layers = sum(run.count for tower in model.towers for run in tower.layers)
    if layers > MAX_LAYERS:
        allowed = f"at most {MAX_LAYERS} layers, embedding and head counted"
        raise InputError(f"{where}: layers", layers, allowed, MAX_LAYERS - 2)
    checked_model(model, where)


def cluster_of(source: ClusterLike, where: str = "--cluster") -> ParsedCluster:
    """Resolve a cluster, with its assumptions and full description.

    Args:
        source: text or path, a typed document, or a ClusterSpec.
        where: its name in an error.

    Raises:
        InputError: no usable cluster.
    """
    if isinstance(source, str):
        return parse_cluster(source, where)
    if isinstance(source, Mapping):
        refuse_non_finite(source, where)
    if isinstance(source, Mapping) and not is_spec(source):
        return cluster_from_keys(source, where)
    if isinstance(source, Mapping):
        source = from_document(ClusterSpec, source, where)
    if not isinstance(source, ClusterSpec):
        raise InputError(where, type(source).__name__, "a text, a document or a ClusterSpec")
    check_cluster(source, where)
    return ParsedCluster(cluster=source, assumptions=(), expansion=expansion(source))


def check_plan(plan: Plan, where: str) -> Plan:
    """Check that a plan's cluster and models are usable; return the plan.

    Raises:
        InputError: a name missing from the catalogue, levels that do not nest, an unsupported
            model, more micro-batches than are simulated.
    """
    check_cluster(plan.cluster, f"{where}: cluster")
    for name, model in plan.models.items():
        check_model(model, f"{where}: models.{name}")
    for name, workload in plan.workloads.items():
        for group in plan.cluster.groups:
            path, kind = f"{where}: workloads.{name}.dtype", device(group.device)
            require_dtype(kind, workload.dtype.param, f"{path}.param")
            if workload.dtype.matmul is not None:
                require_format(kind, workload.dtype.matmul, f"{path}.matmul")
    count = plan.program.schedule.microbatches
    most = max_microbatches(len(plan.program.stages), plan.program.chunks_per_stage)
    if count > most:
        path = f"{where}: programs.0.schedule.microbatches"
        raise InputError(path, count, f"at most {most} with these stages", most)
    return plan
