"""Arguments of the Python functions as request bodies.

Files are read here, never by the service: a path becomes its document. ``local``, and an omitted
cluster, mean the service's machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...datasets.catalogue.documents import read_document
from ...datasets.models.load import DEFAULT_MODEL
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.codec import to_document
from ...spec.huggingface.config import config_document
from ...spec.model.model_spec import ModelSpec
from ...spec.plan.rental_prices import RentalPrices
from ..problem.expert_load import expert_load_of, is_word
from ..problem.model_and_cluster import cluster_of, model_of
from ..problem.price_file import PRICE_FILE_TEXT, PricesLike
from ..problem.workload_size import DEFAULT_BATCH, DEFAULT_SEQ_LEN, lengths_of
from ..server.compute.requests import StrategyBody, WorkloadBody
from ..what_if.inputs import SetValues, SweepValues, question_of

WORKLOAD_FIELDS = tuple(WorkloadBody.__dataclass_fields__)
STRATEGY_FIELDS = tuple(StrategyBody.__dataclass_fields__)
FILE_SUFFIXES = (".json", ".yaml", ".yml")


def problem_body(model: Any, cluster: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``model``, ``cluster`` and ``workload`` of a body.

    Raises:
        InputError: an unreadable file, or no usable model or cluster.
    """
    workload = {
        name: arguments[name] for name in WORKLOAD_FIELDS if arguments.get(name) is not None
    }
    if (
        model is None
        and cluster is None
        and not {"global_batch", "global_batch_tokens"} & {*workload}
    ):
        workload = {"global_batch": DEFAULT_BATCH, "seq_len": DEFAULT_SEQ_LEN, **workload}
    model, loaded = model_body(model), workload.get("expert_load")
    if loaded is not None and not is_word(loaded):
        shape = model_of(model, "model")[0]
        workload["expert_load"] = to_document(expert_load_of(loaded, shape))
    if (lengths := workload.get("lengths")) is not None:
        tokens = workload.get("seq_len")
        workload["lengths"] = to_document(lengths_of(lengths, tokens or DEFAULT_SEQ_LEN))
    return {"model": model, "cluster": cluster_body(cluster), "workload": workload}


def model_body(model: Any) -> Any:
    """A model as a body has it; None is the embedded one.

    Raises:
        InputError: an unreadable file, or no usable model.
    """
    if model is None:
        return DEFAULT_MODEL
    if hasattr(model, "named_parameters"):
        from ...executor.user_module.describe import describe

        model = describe(model, type(model).__name__)
    if isinstance(model, ModelSpec):
        return to_document(model)
    if isinstance(model, (Path, str)) and _is_path(str(model)):
        return to_document(model_of(str(model), "model")[0])
    if (document := config_document(model)) is not None:
        model = document
    return dict(model) if isinstance(model, Mapping) else model


def cluster_body(cluster: Any) -> Any:
    """A cluster as a body has it; None is the service's machine.

    Raises:
        InputError: an unreadable file, or no usable cluster.
    """
    if cluster is None:
        return "local"
    if isinstance(cluster, ClusterSpec):
        return to_document(cluster)
    if isinstance(cluster, (Path, str)) and str(cluster).casefold().endswith(FILE_SUFFIXES):
        return to_document(cluster_of(str(cluster), "cluster").cluster)
    return dict(cluster) if isinstance(cluster, Mapping) else cluster


def _is_path(text: str) -> bool:
    return (
        "/" in text or text.casefold().endswith(FILE_SUFFIXES) or Path(text).expanduser().is_dir()
    )


def prices_body(prices: PricesLike | None) -> Any:
    """The content of a price file.

    Raises:
        InputError: an unreadable file.
    """
    if isinstance(prices, RentalPrices):
        return to_document(prices)
    if isinstance(prices, (str, Path)):
        return dict(read_document(Path(prices).expanduser(), PRICE_FILE_TEXT))
    return None if prices is None else dict(prices)


def what_if_body(
    set: SetValues, sweep: SweepValues | None, add: Any, scale: str | None
) -> dict[str, Any]:
    """The question of a what-if.

    Raises:
        InputError: a text or a mapping of another form.
    """
    question = question_of(set, sweep, None, scale)
    body: dict[str, Any] = {"scale": scale}
    if question.sets:
        body["set"] = dict(question.sets)
    if question.sweep is not None:
        body["sweep"] = {question.sweep.path: list(question.sweep.values)}
    if add is not None:
        body["add"] = cluster_body(add)
    return without_none(body)


def without_none(body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop None values, and objects left empty."""
    kept = {
        name: without_none(value) if name in ("constraints", "strategy") and value else value
        for name, value in body.items()
    }
    return {name: value for name, value in kept.items() if value not in (None, {})}
