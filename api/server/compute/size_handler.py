"""Handler of a training's size: a curve over numbers of devices, or fine-tunings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ....datasets.catalogue.device import device as catalogued
from ....spec.errors import InputError
from ....spec.inputs.token_count import token_count
from ...problem.model_and_cluster import cluster_of, model_of
from ...problem.resolve import Inputs, resolve
from ...size.fine_tuning import FineTuningQuestion, fine_tuning
from ...size.limits import LEAST, within_seconds
from ...size.size_point import SizePoint
from ...size.training_size import (
    DEADLINE_S,
    SizeQuestion,
    cluster_text,
    training_size,
    with_usual_sizes,
)
from ..problems import encode
from .handlers import (
    CLUSTER_TEXT,
    FILE_SUFFIXES,
    MEMORY_SIZES,
    body_cluster,
    body_model,
    body_prices,
)
from .progress_events import EmitEvent
from .size_request import SizeBody

CURVE_S = 120.0
"""Of the table that comes before any full search."""
WRITING_S = 1.0
"""Left for the answer after the searches."""


def size_deadline(body: SizeBody) -> float:
    """Seconds of a size's job: its table's, and those of its searches."""
    searches_s = DEADLINE_S if body.deadline_s is None else body.deadline_s
    return CURVE_S + WRITING_S + (searches_s if _searches(body) else 0.0)


def answers_soon(body: SizeBody) -> bool:
    """True if nothing is searched in full."""
    return not _searches(body)


def _searches(body: SizeBody) -> bool:
    limited = body.within is not None or body.budget is not None
    return limited or (body.cluster is not None and body.deadline_s is not None)


def check_size_body(body: SizeBody) -> None:
    """Refuse a size that could not be found; no plan is priced.

    Raises:
        InputError: both or neither of device and cluster, or a value that cannot be used.
    """
    _require_one_place(body)
    token_count(body.tokens, "--tokens")
    model = body_model(body.model)
    model_of(model)
    if body.cluster is not None:
        cluster_of(body_cluster(body.cluster))
        return
    question = _curve_question(body)
    catalogued(question.device.partition("@")[0], "--device")
    within_seconds(question.within)
    inputs, _ = with_usual_sizes(replace(question.inputs, prices=question.prices), model)
    resolve(replace(inputs, cluster=cluster_text(question.device, LEAST)))


def handle_size(body: SizeBody, ends_s: float, emit: EmitEvent | None) -> dict[str, Any]:
    """Size a training until ``ends_s`` (monotonic clock), or price fine-tunings.

    Raises:
        InputError: a value that cannot be used.
    """
    _require_one_place(body)
    if body.cluster is not None:
        return fine_tuning(_fine_tuning_question(body)).to_document()
    question = _curve_question(body)
    left_s = max(0.0, ends_s - time.monotonic() - CURVE_S)
    question = replace(question, deadline_s=min(question.deadline_s, left_s))
    start_s = time.monotonic()

    def show(points: Sequence[SizePoint]) -> None:
        if emit is not None:
            rows = [_without_plan(point) for point in points]
            seconds = round(time.monotonic() - start_s, 3)
            emit("curve", encode({"seconds": seconds, "points": rows}))

    return training_size(question, show).to_document()


def _without_plan(point: SizePoint) -> dict[str, Any]:
    return {name: value for name, value in point.to_document().items() if name != "plan"}


def _require_one_place(body: SizeBody) -> None:
    if (body.device is None) == (body.cluster is None):
        given = "nothing" if body.device is None else "both device and cluster"
        raise InputError("--device", given, "a device, or a cluster", "H100-80GB")
    others = ("within", "budget", "scaling") if body.device is None else ("epochs",)
    beside = "cluster" if body.device is None else "device"
    for name in others:
        if getattr(body, name) is not None:
            raise InputError(f"--{name}", getattr(body, name), f"nothing beside {beside}")
    if body.budget is not None and body.prices is None:
        near = {"currency": "USD", "device_hour": {"H100-80GB": 2.5}}
        raise InputError("--prices", "nothing", "prices of device-hours, for a budget", near)


def _curve_question(body: SizeBody) -> SizeQuestion:
    device = (body.device or "").strip()
    if not CLUSTER_TEXT.fullmatch(device) or device.casefold().endswith(FILE_SUFFIXES):
        allowed = "a device (GET /v1/clusters lists them), or DEVICE@FABRIC"
        raise InputError("--device", device, allowed, "H100-80GB")
    return SizeQuestion(
        device=device,
        tokens=body.tokens,
        inputs=_inputs(body),
        within=body.within,
        budget=body.budget,
        prices=None if body.prices is None else body_prices(body.prices),
        deadline_s=DEADLINE_S if body.deadline_s is None else body.deadline_s,
        scaling=body.scaling or "strong",
    )


def _fine_tuning_question(body: SizeBody) -> FineTuningQuestion:
    cluster = None if body.cluster is None else body_cluster(body.cluster)
    return FineTuningQuestion(
        inputs=replace(_inputs(body), cluster=cluster),
        tokens=body.tokens,
        epochs=1.0 if body.epochs is None else body.epochs,
        prices=None if body.prices is None else body_prices(body.prices),
        deadline_s=body.deadline_s or 0.0,
    )


def _inputs(body: SizeBody) -> Inputs:
    workload = {} if body.workload is None else asdict(body.workload)
    names = ("stack", "calibration", *MEMORY_SIZES)
    return Inputs(
        model=body_model(body.model), **workload, **{name: getattr(body, name) for name in names}
    )
