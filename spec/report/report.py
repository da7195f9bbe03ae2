"""Report: a plan's prediction, search and assumptions.

A report refers to a plan by hash and is never part of it. ``breakdown_s`` splits the step on its
critical stage (the stage whose compute stream is busy longest; the lowest number on a tie); the
terms add up to ``step_time_s``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..choices import Objective
from ..plan.plan import Plan
from ..plan.shape_text import shape_text
from ..units import format_seconds
from .checkpoint_price import CheckpointPrice
from .training_run import TrainingRun

BREAKDOWN_TERMS = (
    "matmul",
    "attention",
    "elementwise",
    "recompute",
    "exposed_tp",
    "exposed_dp",
    "exposed_pp",
    "exposed_cp",
    "exposed_ep",
    "bubble",
    "optimizer",
    "host",
    "unattributed",
)
MEMORY_TERMS = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "workspace",
    "communication",
    "fragmentation",
    "context",
)
LEADING_KEYS = ("plan", "prediction", "search")
"""What a report's document begins with, in this order."""
INTERVAL_LEVEL = 0.8
"""Nominal share of measured steps inside the interval of the step time."""
FLOPS_CONVENTION = (
    "model FLOPs: matrix products and full (not halved) attention, backward twice the forward, "
    "recomputation left out; mfu_causal leaves out what causal masks hide (half of plain causal "
    "attention); hfu counts recomputation too"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Peak bytes of one memory tier on one device of a stage.

    ``by`` adds up to ``reserved``.
    """

    program: str
    stage: int
    device_group: str
    tier: Literal["hbm", "host", "nvme"] = "hbm"
    allocated_bytes: int
    reserved_bytes: int
    capacity_bytes: int
    by: dict[str, int]

    @property
    def excess_bytes(self) -> int:
        """Bytes of ``reserved_bytes`` over the capacity; 0 if it fits."""
        return max(0, self.reserved_bytes - self.capacity_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Time, throughput and memory of one step of a plan.

    SI units, fractions not per cent.

    ``mfu`` counts every score of attention, ``mfu_causal`` leaves out those that causal masks hide.
    ``tokens_per_s`` are those of all devices; both are None in documents of versions without them.
    The costs are present where prices were given: of the devices in stages and their nodes;
    ``training`` where a number of tokens was, ``checkpoint`` where a folder for them was.
    """

    feasible: bool
    step_time_s: float
    step_time_interval_s: tuple[float, float]
    samples_per_s: float
    tokens_per_s_per_device: float
    flops_per_s_per_device: float
    mfu: float
    hfu: float
    memory: tuple[MemoryRow, ...]
    breakdown_s: dict[str, float]
    interval_level: float = INTERVAL_LEVEL
    flops_convention: str = FLOPS_CONVENTION
    mfu_causal: float | None = None
    tokens_per_s: float | None = None
    training: TrainingRun | None = None
    checkpoint: CheckpointPrice | None = None
    cost_per_token: float | None = None
    cost_per_million_tokens: float | None = None
    cost_per_step: float | None = None
    currency: str | None = None

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form with every key present, those of cost only with prices."""
        from dataclasses import asdict

        document = asdict(self)
        if self.training is not None:
            document["training"] = self.training.to_document()
        return {key: value for key, value in document.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A value that was not given.

    Its path, the value used and why.
    """

    path: str
    value: Any
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveResult:
    """The objective and the best value found.

    No plan of the space has a better value than ``bound``: a lower one of seconds a step or of
    cost per token, a higher one of a size. None where nothing is proven.
    """

    name: Objective
    unit: str
    value: float
    bound: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TieSet:
    """Simulated plans that the model's error cannot tell from the best.

    Their objective is within the fraction ``within`` of the best one's. ``simplest`` is the hash
    of the one with the fewest distinct strategies, of which it has ``strategies``.
    """

    within: float
    size: int
    simplest: str
    strategies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The search for the largest batch or sequence.

    ``beyond`` is the next size, which does not fit: proven of every plan where
    ``beyond_proven``, else none was found within the limits. It is None where ``limited_by`` is
    not memory. ``tried`` lists every size asked for and whether it fits.
    """

    what: Literal["global_batch", "seq_len"]
    size: int
    grain: int
    beyond: int | None
    beyond_proven: bool
    limited_by: Literal["memory", "model", "deadline"]
    tried: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Relative change of the step time by a resource's small change."""

    resource: str
    change: float
    step_time_change: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Result of the search; every plan of ``space`` takes at least ``lower_bound_s``.

    ``gap`` is that of the objective: the best value's distance from its proven bound.
    """

    seconds: float
    candidates: int
    lower_bound_s: float
    gap: float
    stopped_by: Literal["proof", "work", "deadline"]
    space: dict[str, list[Any]]
    left_out: list[dict[str, str]]
    objective: ObjectiveResult
    tie_set: TieSet
    largest: Largest | None = None

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form; ``largest`` only if that was asked for."""
        from dataclasses import asdict

        document = asdict(self)
        if self.largest is None:
            del document["largest"]
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Sources of the figures."""

    stack: str
    calibration: str
    tables: list[str]
    versions: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Alternative:
    """Another plan, its prediction and why it lost.

    ``fastest``: True if it beats the plan of the report, which is simpler.
    """

    plan: Plan
    prediction: Prediction
    lost_by: str
    simplest: bool = False
    fastest: bool = False

    def __repr__(self) -> str:
        marks = "".join(f", {name}" for name in ("simplest", "fastest") if getattr(self, name))
        step = format_seconds(self.prediction.step_time_s)
        return f"<Alternative {shape_text(self.plan)}; step {step}, {self.lost_by}{marks}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A near request that is served better, or why the plan is fragile.

    ``value``: the near size, ``gain`` its relative gain of tokens a second and device, ``plan`` a
    plan of it. Of a fragile plan: the best sound plan, and its gain, which is negative.
    """

    about: Literal["global_batch", "seq_len", "devices", "fragile"]
    why: str
    value: int | None = None
    gain: float | None = None
    plan: Plan | None = None

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, without what is None."""
        plan = None if self.plan is None else self.plan.to_document()
        document: dict[str, Any] = {"about": self.about, "why": self.why, "value": self.value}
        document |= {"gain": self.gain, "plan": plan}
        return {key: value for key, value in document.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class StackAnswer:
    """The answer for another stack: its plan and prediction, None where no plan fits."""

    stack: str
    plan: Plan | None = None
    prediction: Prediction | None = None

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "stack": self.stack,
            "plan": None if self.plan is None else self.plan.to_document(),
            "prediction": None if self.prediction is None else self.prediction.to_document(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer to ``plan`` or ``simulate`` (without search and alternatives)."""

    plan: Plan
    prediction: Prediction
    assumptions: tuple[Assumption, ...]
    source_share: dict[str, float]
    provenance: Provenance
    search: SearchResult | None = None
    alternatives: tuple[Alternative, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    advice: tuple[Advice, ...] = ()
    common_stack: StackAnswer | None = None
    execute: dict[str, Any] | None = field(default=None)

    def to_document(self) -> dict[str, Any]:
        """The documented ``--json`` document."""
        from dataclasses import asdict

        document: dict[str, Any] = {
            "plan": self.plan.to_document(),
            "prediction": self.prediction.to_document(),
        }
        if self.search is not None:
            document["search"] = self.search.to_document()
            document["alternatives"] = [_alternative(item) for item in self.alternatives]
        if self.advice:
            document["advice"] = [item.to_document() for item in self.advice]
        if self.common_stack is not None:
            document["common_stack"] = self.common_stack.to_document()
        if self.sensitivities or self.search is not None:
            document["sensitivities"] = [asdict(item) for item in self.sensitivities]
        document |= {
            "plan_hash": self.plan.hash,
            "assumptions": [asdict(item) for item in self.assumptions],
            "source_share": self.source_share,
            "provenance": asdict(self.provenance),
        }
        if self.execute is not None:
            document["execute"] = self.execute
        return document


def _alternative(item: Alternative) -> dict[str, Any]:
    document = {
        "plan": item.plan.to_document(),
        "prediction": item.prediction.to_document(),
        "lost_by": item.lost_by,
    }
    marks = {"simplest": item.simplest, "fastest": item.fastest}
    return document | {name: True for name, is_set in marks.items() if is_set}
