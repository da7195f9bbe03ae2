"""The size of a training: a curve over numbers of devices, and the smallest that meets its limits.

Every point is first the best of the usual uniform plans with a proven bound on all others. The
points that decide, next to date and budget, are then searched in full, the smallest that a bound
does not rule out first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...datasets.catalogue.device import device as catalogued
from ...planner.solve.garbage_collection import garbage_collection_paused
from ...spec.errors import InputError
from ...spec.inputs.token_count import token_count
from ...spec.report.report import Assumption
from ..html.size import size_html
from ..planning.training import STEPS_ALONE
from ..problem.model_and_cluster import ModelLike, model_of
from ..problem.price_file import PricesLike
from ..problem.resolve import Inputs
from ..problem.workload_size import usual_seq_len
from .limits import LEAST, MOST, device_counts, typed_prices, within_seconds
from .scaling import TOO_SMALL, DeviceBatch, Scaling, checked_scaling
from .size_point import QuickPoints, SizePoint, searched_point

USUAL_TOKENS = 2**22
"""Tokens of a step where none are given, as Llama 2 and GPT-3 train with (4 Mi, 3.2 M)."""
DEADLINE_S = 180.0
BETWEEN = (5, 6, 7)
"""Eighths of the smallest number that meets the limits, tried between it and its half."""
MOST_SEARCHES = 4
Table = Callable[[Sequence[SizePoint]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeQuestion:
    """A question of ``plan size``.

    ``inputs``: the problem without a cluster. ``device``: a device with or without ``@FABRIC``.
    ``tokens`` of the training; ``within`` a time and ``budget`` a sum in the currency of
    ``prices``. ``deadline_s``: of all searches together; 0: none is made. ``scaling``: ``strong``
    holds the batch of a step fixed, ``weak`` that of a device; limits are met on the first of both.
    """

    device: str
    tokens: str | float
    inputs: Inputs = field(default_factory=Inputs)
    within: str | float | None = None
    budget: float | None = None
    prices: PricesLike | None = None
    least: int = LEAST
    most: int = MOST
    deadline_s: float = DEADLINE_S
    scaling: Scaling = "strong"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSize:
    """The curve of a question; ``answer`` is the smallest point that meets its limits, or None.

    ``weak_points``: with ``scaling`` both, the second curve, else empty. ``device_batch``: what
    weak scaling holds fixed, None without it.
    """

    model: str
    device: str
    tokens: int
    within_s: float | None
    budget: float | None
    currency: str | None
    points: tuple[SizePoint, ...]
    answer: SizePoint | None
    assumptions: tuple[Assumption, ...]
    scaling: Scaling = "strong"
    weak_points: tuple[SizePoint, ...] = ()
    device_batch: DeviceBatch | None = None

    @property
    def ruled_out(self) -> bool:
        """True if bounds prove that no plan of any point meets the limits."""
        return not any(p.may_meet(self.within_s, self.budget) for p in self.points)

    def _repr_html_(self) -> str:
        return size_html(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, a stable contract (docs/sizing.md)."""
        return {
            "model": self.model,
            "device": self.device,
            "tokens": self.tokens,
            "within_s": self.within_s,
            "budget": self.budget,
            "currency": self.currency,
            "answer": None if self.answer is None else self.answer.devices,
            "ruled_out": self.ruled_out,
            "points": [point.to_document() for point in self.points],
            "scaling": self.scaling,
            "weak_points": [point.to_document() for point in self.weak_points],
            "assumptions": [asdict(note) for note in self.assumptions],
        }


def training_size(question: SizeQuestion, first_table: Table | None = None) -> TrainingSize:
    """Size a training.

    Args:
        question: model, device, tokens and limits.
        first_table: is called with the points before any is searched in full.

    Raises:
        InputError: no such model or device, a limit that cannot be read, a budget without prices.
    """
    catalogued(question.device.partition("@")[0], "--device")
    tokens = token_count(question.tokens, "--tokens")
    within_s = within_seconds(question.within)
    budget = question.budget
    if budget is not None and question.prices is None:
        near = f"{question.device.partition('@')[0]}=2.5"
        raise InputError("--prices", "nothing", "prices of device-hours, for --budget", near)
    counts = device_counts(question.least, question.most)
    checked_scaling(question.scaling)
    inputs, notes = _with_sizes(question)
    batch = _device_batch(question, inputs, counts)
    notes += [] if batch is None else [batch.note()]
    with garbage_collection_paused():
        curve = _Curve(inputs, question.device, tokens, batch)
        first = replace(curve, batch=None) if question.scaling == "both" else curve
        points = {n: first.point(n) for n in counts}
        weak = [curve.point(n) for n in counts] if question.scaling == "both" else []
        limited = within_s is not None or budget is not None
        if limited:
            for count in _between(points, within_s, budget):
                points[count] = first.point(count)
        if first_table is not None:
            first_table(_ordered(points))
        if limited and question.deadline_s > 0:
            _search(points, within_s, budget, question.deadline_s)
    made = _ordered(points)
    answer = next((point for point in made if point.meets(within_s, budget)), None)
    priced = next((p.prediction for p in made if p.prediction is not None), None)
    return TrainingSize(
        model=model_of(inputs.model)[0].name if inputs.model is not None else "",
        device=question.device,
        tokens=tokens,
        within_s=within_s,
        budget=budget,
        currency=None if priced is None else priced.currency,
        points=made,
        answer=answer if limited else None,
        assumptions=(*notes, *_notes(made)),
        scaling=question.scaling,
        weak_points=tuple(weak),
        device_batch=batch,
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """Points of a question; ``batch`` of a device, None where that of a step is fixed."""

    inputs: Inputs
    device: str
    tokens: int
    batch: DeviceBatch | None
    quick: QuickPoints = field(default_factory=QuickPoints)

    def point(self, count: int) -> SizePoint:
        """The point of so many devices, not searched."""
        inputs = replace(self.inputs, cluster=cluster_text(self.device, count))
        if self.batch is not None:
            if not self.batch.on(count):
                return SizePoint(devices=count, tokens=self.tokens, problem=None, why=TOO_SMALL)
            inputs = self.batch.inputs(inputs, count)
        return self.quick.point(inputs, count, self.tokens)


def _device_batch(
    question: SizeQuestion, inputs: Inputs, counts: Sequence[int]
) -> DeviceBatch | None:
    if question.scaling == "strong":
        return None
    return DeviceBatch.of(inputs, counts, inputs.seq_len or 1)


def _ordered(points: dict[int, SizePoint]) -> tuple[SizePoint, ...]:
    return tuple(points[count] for count in sorted(points))


def _with_sizes(question: SizeQuestion) -> tuple[Inputs, list[Assumption]]:
    """Inputs with a batch and a sequence length, which a training of this kind usually has."""
    inputs = replace(question.inputs, prices=typed_prices(question.prices))
    if inputs.model is None:
        raise InputError("--model", "nothing", "a model", "llama-3-70b")
    return with_usual_sizes(inputs, inputs.model)


def with_usual_sizes(inputs: Inputs, model: ModelLike) -> tuple[Inputs, list[Assumption]]:
    """Inputs with a sequence length and tokens a step where they were left out, and notes."""
    notes = []
    seq_len = inputs.seq_len
    if seq_len is None:
        seq_len = usual_seq_len(model_of(model)[0])
        note = Assumption(path="workload.seq_len", value=seq_len, why="not given; a usual length")
        notes.append(note)
        inputs = replace(inputs, seq_len=seq_len)
    if inputs.global_batch is None and inputs.global_batch_tokens is None:
        batch = max(1, USUAL_TOKENS // seq_len)
        why = f"not given; about {USUAL_TOKENS} tokens a step"
        notes.append(Assumption(path="workload.global_batch", value=batch, why=why))
        inputs = replace(inputs, global_batch=batch)
    return inputs, notes


def cluster_text(device: str, count: int) -> str:
    """So many devices in their usual nodes, on a fabric where one is given."""
    name, at, fabric = device.partition("@")
    return f"{count}x{name}{at}{fabric}"


def _between(
    points: dict[int, SizePoint], within_s: float | None, budget: float | None
) -> list[int]:
    """Numbers between the smallest that meets the limits and its half, in whole nodes of eight."""
    met = [n for n, point in sorted(points.items()) if point.meets(within_s, budget)]
    if not met or met[0] // 2 not in points:
        return []
    counts = [met[0] * eighths // 8 for eighths in BETWEEN]
    return [count for count in counts if count % 8 == 0]


def _search(
    points: dict[int, SizePoint], within_s: float | None, budget: float | None, deadline_s: float
) -> None:
    """Search the smallest points that may meet the limits, until one does."""
    ends_s = time.monotonic() + deadline_s
    open_counts = [n for n, p in sorted(points.items()) if p.may_meet(within_s, budget)]
    met = [n for n in open_counts if points[n].meets(within_s, budget)]
    first = met[0] if met else max(open_counts, default=0)
    below = [n for n in open_counts if n < first][-(MOST_SEARCHES - 1) :]
    tried = [*below, *([first] if first else [])]
    for number, count in enumerate(tried):
        left_s = max(0.0, ends_s - time.monotonic()) / (len(tried) - number)
        points[count] = searched_point(points[count], left_s)
        if points[count].meets(within_s, budget):
            return


def _notes(points: Sequence[SizePoint]) -> list[Assumption]:
    """Assumptions of the problems, once each; those of each number of devices are left out."""
    found: list[Assumption] = []
    for point in points:
        for note in () if point.problem is None else point.problem.assumptions:
            if not note.path.startswith("cluster") and note not in found:
                found.append(note)
    steps = Assumption(path="training.time_s", value="no pauses", why=STEPS_ALONE)
    return [*found, steps]
