"""Sizes of trainings, from Python."""

from __future__ import annotations

from typing import Any

from ...spec.errors import InputError
from ..problem.model_and_cluster import ClusterLike, ModelLike
from ..problem.names import unknown_argument
from ..problem.price_file import PricesLike
from ..problem.resolve import Inputs
from ..size.fine_tuning import FineTuning, FineTuningQuestion, fine_tuning
from ..size.scaling import Scaling
from ..size.training_size import DEADLINE_S, SizeQuestion, TrainingSize, training_size


def size(
    model: ModelLike,
    tokens: str | float,
    *,
    device: str | None = None,
    cluster: ClusterLike | None = None,
    within: str | float | None = None,
    budget: float | None = None,
    prices: PricesLike | None = None,
    epochs: float | None = None,
    deadline_s: float | None = None,
    scaling: Scaling | None = None,
    **flags: Any,
) -> TrainingSize | FineTuning:
    """Say how many devices a training needs, or how long fine-tunings take on a cluster.

    Args:
        model: a name, path, typed document or ModelSpec.
        tokens: of the training, such as ``2T``; with a cluster those of an epoch.
        device: with or without ``@FABRIC``: a curve over its number, from 8 to 16384.
        cluster: instead of a device: full, LoRA and QLoRA fine-tuning on it.
        within: time that the training may take, ``30d``; a number is days.
        budget: what it may cost, in the prices' currency.
        prices: a path, a document, Prices, or ``DEVICE=2.5``.
        epochs: with a cluster, how often the tokens are trained on; 1 if None.
        deadline_s: of all full searches; 180 if None, with a cluster none is made.
        scaling: ``strong`` (None): a step's batch is fixed; ``weak``: a device's; ``both``.
        flags: other flags of ``plan``: ``global_batch``, ``seq_len``, ``dtype``, ``stack``, …

    Raises:
        InputError: both or neither of device and cluster, or an argument that cannot be used.
    """
    for name in flags:
        if name not in Inputs.__dataclass_fields__:
            raise unknown_argument(name, tuple(Inputs.__dataclass_fields__))
    if (device is None) == (cluster is None):
        given = "nothing" if device is None else "both device and cluster"
        raise InputError("device", given, "a device, or a cluster", "H100-80GB")
    inputs = Inputs(model=model, **flags)
    if cluster is not None:
        others = {"within": within, "budget": budget, "scaling": scaling}
        problem = Inputs(model=model, cluster=cluster, **flags)
        return _fine_tuning(problem, tokens, epochs, prices, deadline_s, others)
    if epochs is not None:
        raise InputError("epochs", epochs, "nothing beside device")
    question = SizeQuestion(
        device=str(device),
        tokens=tokens,
        inputs=inputs,
        within=within,
        budget=budget,
        prices=prices,
        deadline_s=DEADLINE_S if deadline_s is None else deadline_s,
        scaling=scaling or "strong",
    )
    return training_size(question)


def _fine_tuning(
    inputs: Inputs,
    tokens: str | float,
    epochs: float | None,
    prices: PricesLike | None,
    deadline_s: float | None,
    others: dict[str, Any],
) -> FineTuning:
    for name, value in others.items():
        if value is not None:
            raise InputError(name, value, "nothing beside cluster")
    question = FineTuningQuestion(
        inputs=inputs,
        tokens=tokens,
        epochs=1.0 if epochs is None else epochs,
        prices=prices,
        deadline_s=deadline_s or 0.0,
    )
    return fine_tuning(question)
