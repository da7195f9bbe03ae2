"""Report: what is predicted of a plan, how it was found and what was assumed.

A report refers to a plan by hash and is never part of it. ``breakdown_s`` names where the
step goes on its critical stage (the stage whose compute stream is busy longest; the lowest
number on a tie); the terms add up to ``step_time_s``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from .plan import Plan

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
INTERVAL_LEVEL = 0.8
"""The share of measured steps that an interval of the step time is meant to hold."""
FLOPS_CONVENTION = (
    "model FLOPs: matrix products and full (not halved) attention, backward twice the forward, "
    "recomputation left out; hfu counts recomputation too"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Peak bytes of one memory tier on one device of a stage; ``by`` adds up to ``reserved``."""

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
        """How far ``reserved_bytes`` is over the capacity; 0 if it fits."""
        return max(0, self.reserved_bytes - self.capacity_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Time, throughput and memory of one step of a plan; SI units, fractions not per cent."""

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

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form with every key present."""
        from dataclasses import asdict

        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A value nobody gave: where it went, what it is and why."""

    path: str
    value: Any
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """How far the search got: every plan of ``space`` takes at least ``lower_bound_s``."""

    seconds: float
    candidates: int
    lower_bound_s: float
    gap: float
    stopped_by: Literal["proof", "work", "deadline"]
    space: dict[str, list[Any]]
    left_out: list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What the figures rest on."""

    stack: str
    calibration: str
    tables: list[str]
    versions: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another plan, how it fares and why it lost."""

    plan: Plan
    prediction: Prediction
    lost_by: str
    simplest: bool = False


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
    execute: dict[str, Any] | None = field(default=None)

    def to_document(self) -> dict[str, Any]:
        """The ``--json`` document of the contract."""
        from dataclasses import asdict

        document: dict[str, Any] = {
            "plan": self.plan.to_document(),
            "plan_hash": self.plan.hash,
            "prediction": self.prediction.to_document(),
            "assumptions": [asdict(item) for item in self.assumptions],
            "source_share": self.source_share,
            "provenance": asdict(self.provenance),
        }
        if self.search is not None:
            document["search"] = asdict(self.search)
            document["alternatives"] = [_alternative(item) for item in self.alternatives]
        if self.execute is not None:
            document["execute"] = self.execute
        return document


def _alternative(item: Alternative) -> dict[str, Any]:
    document = {
        "plan": item.plan.to_document(),
        "prediction": item.prediction.to_document(),
        "lost_by": item.lost_by,
    }
    return {**document, "simplest": True} if item.simplest else document
