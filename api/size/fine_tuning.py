"""Fine-tuning on one cluster: full, LoRA and QLoRA side by side.

Each is the best of the usual uniform plans, with a bound on every plan; with a deadline, a full
search. What a model or device does not allow is refused by name, in its row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...planner.solve.garbage_collection import garbage_collection_paused
from ...spec.errors import InputError
from ...spec.inputs.token_count import token_count
from ...spec.report.report import Assumption
from ..html.size import size_html
from ..planning.training import STEPS_ALONE
from ..problem.model_and_cluster import cluster_of, model_of
from ..problem.price_file import PricesLike
from ..problem.resolve import Inputs
from .limits import typed_prices
from .size_point import SizePoint, quick_point, searched_point
from .training_size import with_usual_sizes

ADAPTERS = "lora:r=16,alpha=32,target_modules=all-linear"
QUANTIZED = "base_dtype=nf4"
SAMPLES = 64
"""Samples of a step where none are given."""
LORA_WHY = "rank 16 on all linear layers; --trainable lora:… gives others"


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningQuestion:
    """A question of ``plan size --cluster``.

    ``tokens`` of an epoch, ``epochs`` of them. ``inputs``: the problem; ``trainable`` of it, where
    given, says the adapters. ``deadline_s``: of the searches together; 0: none is made.
    """

    inputs: Inputs
    tokens: str | float
    epochs: float = 1.0
    prices: PricesLike | None = None
    deadline_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """Ways to train a model further, by name; ``refused`` says why one is not among them."""

    model: str
    cluster: str
    tokens: int
    trainable: Mapping[str, str]
    points: Mapping[str, SizePoint]
    refused: Mapping[str, str]
    assumptions: tuple[Assumption, ...] = field(default=())

    def _repr_html_(self) -> str:
        return size_html(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, a stable contract (docs/sizing.md)."""
        ways = []
        for name, trainable in self.trainable.items():
            point = self.points.get(name)
            row = {} if point is None else point.to_document()
            hours = None if point is None or point.time_s is None else point.time_s / 3600
            why = self.refused.get(name) or row.pop("why", "")
            ways.append({"name": name, "trainable": trainable, "hours": hours, "why": why, **row})
        return {
            "model": self.model,
            "cluster": self.cluster,
            "tokens": self.tokens,
            "ways": ways,
            "assumptions": [asdict(note) for note in self.assumptions],
        }


def fine_tuning(question: FineTuningQuestion) -> FineTuning:
    """Price full fine-tuning, adapters, and adapters over weights of four bits.

    Raises:
        InputError: no such model or cluster, or a size that cannot be used.
    """
    inputs = question.inputs
    if inputs.model is None or inputs.cluster is None:
        missing = "--model" if inputs.model is None else "--cluster"
        raise InputError(missing, "nothing", "a model and a cluster", "8xH100-80GB")
    if not question.epochs > 0:
        raise InputError("--epochs", question.epochs, "a number above 0", 3)
    tokens = round(token_count(question.tokens, "--tokens") * question.epochs)
    ways, notes = _ways(inputs.trainable)
    model, devices = model_of(inputs.model)[0].name, cluster_of(inputs.cluster).cluster.device_count
    inputs, size_notes = _sized(replace(inputs, prices=typed_prices(question.prices)))
    ends_s = time.monotonic() + question.deadline_s
    points: dict[str, SizePoint] = {}
    refused: dict[str, str] = {}
    with garbage_collection_paused():
        for number, (name, trainable) in enumerate(ways.items()):
            try:
                points[name] = quick_point(replace(inputs, trainable=trainable), devices, tokens)
            except InputError as error:
                refused[name] = str(error)
                continue
            if question.deadline_s > 0:
                left_s = max(0.0, ends_s - time.monotonic()) / (len(ways) - number)
                points[name] = searched_point(points[name], left_s)
    if not points:
        raise InputError("--model", inputs.model, f"one that is priced here ({refused['full']})")
    steps = Assumption(path="training.time_s", value="no pauses", why=STEPS_ALONE)
    first = next(iter(points.values())).problem
    shared = () if first is None else tuple(n for n in first.assumptions if n not in notes)
    return FineTuning(
        model=model,
        cluster="" if first is None else first.expansion,
        tokens=tokens,
        trainable=ways,
        points=points,
        refused=refused,
        assumptions=(*notes, *size_notes, *shared, steps),
    )


def _ways(typed: str | None) -> tuple[dict[str, str], list[Assumption]]:
    """The trained part of each way, and notes."""
    notes = []
    adapters = typed if typed is not None and typed.startswith("lora") else None
    if adapters is None:
        adapters = ADAPTERS
        notes.append(Assumption(path="workload.trainable", value=adapters, why=LORA_WHY))
    plain = ",".join(part for part in adapters.split(",") if not part.startswith("base_dtype"))
    quantized = f"{plain}{',' if ':' in plain else ':'}{QUANTIZED}"
    return {"full": "full", "LoRA": plain, "QLoRA": quantized}, notes


def _sized(inputs: Inputs) -> tuple[Inputs, list[Assumption]]:
    notes = []
    if inputs.global_batch is None and inputs.global_batch_tokens is None:
        note = Assumption(path="workload.global_batch", value=SAMPLES, why="not given; a usual one")
        notes.append(note)
        inputs = replace(inputs, global_batch=SAMPLES)
    if inputs.model is None:
        raise RuntimeError("a model was checked for")
    inputs, more = with_usual_sizes(inputs, inputs.model)
    return replace(inputs, task=inputs.task or "sft"), [*notes, *more]
