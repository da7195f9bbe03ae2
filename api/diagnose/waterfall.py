"""Waterfall of a step: from the devices' peak to the measured MFU, in bars that add up.

A bar is the share of the measured step that goes to it, so that MFU + Σ bars = 1 whatever their
order. The first seconds are the model's FLOPs at the devices' dense peak (masked scores left out);
the simulated step's terms follow, then what it does not explain, and what slow steps add to the
median one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...costmodel.simulation.pass_time import PASS_TERMS
from ...spec.errors import InputError
from ..planning.report import Simulated

AT_PEAK, KERNELS, IMBALANCE = "at_peak", "below_peak", "imbalance"
UNEXPLAINED, SLOW_STEPS = "unexplained", "slow_steps"
PRODUCTS = ("matmul", "attention")
ROUNDS = 4
WORDS: Mapping[str, str] = {
    AT_PEAK: "the model's FLOPs at the devices' peak: the MFU",
    KERNELS: "matrix products and attention below the devices' peak",
    IMBALANCE: "products and attention: busiest stage beyond the mean one",
    "elementwise": "norms, activations, losses: bound by memory bandwidth",
    "recompute": "activations computed again",
    "exposed_tp": "tensor-parallel collectives that nothing hides",
    "exposed_dp": "gradient sums and parameter gathers that nothing hides",
    "exposed_pp": "messages between stages that nothing hides",
    "exposed_cp": "context-parallel exchanges that nothing hides",
    "exposed_ep": "expert-parallel exchanges that nothing hides",
    "bubble": "waiting for other stages",
    "optimizer": "gradient norm and update",
    "host": "launching on the host",
    "unattributed": "rounding between the terms",
    UNEXPLAINED: "median beyond the simulated step (below 0: faster)",
    SLOW_STEPS: "the mean step beyond the median one",
}


class Bar(NamedTuple):
    """Seconds of the measured step that go to a term, and their share of it."""

    term: str
    seconds: float
    share: float

    @property
    def words(self) -> str:
        """The term in words."""
        return WORDS.get(self.term, "a technique of the plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """Bars of a measured step, the first one at the devices' peak.

    The exact sum of ``bars`` is ``measured_s``. ``mfu`` leaves out masked scores, ``mfu_full``
    counts them, as the frameworks' own logs mostly do.
    """

    measured_s: float
    predicted_s: float
    bars: tuple[Bar, ...]
    mfu_full: float

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by term."""
        return {bar.term: bar.seconds for bar in self.bars}

    @property
    def mfu(self) -> float:
        """Share of the measured step that the model's FLOPs take at the peak."""
        return self.bars[0].share

    @property
    def loss_s(self) -> float:
        """Seconds of the measured step beyond those at the peak."""
        return self.measured_s - self.bars[0].seconds

    @property
    def unexplained_s(self) -> float:
        """Seconds that the simulated step does not explain, slow steps included."""
        return self.measured_s - self.predicted_s

    @property
    def explained(self) -> float:
        """Fraction of the loss that the simulated step explains, at most 1."""
        return 1 - abs(self.unexplained_s) / self.loss_s

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "measured_s": self.measured_s,
            "predicted_s": self.predicted_s,
            "mfu": self.mfu,
            "mfu_full_attention": self.mfu_full,
            "explained": self.explained,
            "bars": [{**bar._asdict(), "meaning": bar.words} for bar in self.bars],
        }


def waterfall(simulated: Simulated, measured_s: float, slow_s: float = 0.0) -> Waterfall:
    """Split a measured step.

    Args:
        simulated: the step of its configuration.
        measured_s: the mean step, in seconds.
        slow_s: of it, beyond the median.

    Raises:
        InputError: a step shorter than its FLOPs take at the devices' peak.
    """
    prediction = simulated.report.prediction
    predicted_s = prediction.step_time_s
    utilization = prediction.mfu if prediction.mfu_causal is None else prediction.mfu_causal
    at_peak_s = utilization * predicted_s
    if measured_s <= at_peak_s:
        allowed = f"at least {at_peak_s:.4g} s, in which the devices' peak does the model's FLOPs"
        raise InputError("measured step", f"{measured_s:.4g} s", allowed)
    terms = {AT_PEAK: at_peak_s, **_simulated_terms(simulated, at_peak_s)}
    terms[UNEXPLAINED] = measured_s - slow_s - predicted_s
    terms[SLOW_STEPS] = slow_s
    kept = {name: s for name, s in terms.items() if s != 0 or name == UNEXPLAINED}
    exact = _exact(kept, measured_s)
    return Waterfall(
        measured_s=measured_s,
        predicted_s=predicted_s,
        bars=tuple(Bar(name, s, s / measured_s) for name, s in exact.items()),
        mfu_full=prediction.mfu * predicted_s / measured_s,
    )


def _exact(terms: dict[str, float], total_s: float) -> dict[str, float]:
    """Terms whose exact sum, rounded once, is the whole; the unexplained one takes the rounding."""
    for _ in range(ROUNDS):
        error_s = math.fsum([total_s, *(-seconds for seconds in terms.values())])
        if math.fsum(terms.values()) == total_s:
            break
        terms[UNEXPLAINED] += error_s
    return terms


def _simulated_terms(simulated: Simulated, at_peak_s: float) -> dict[str, float]:
    """The simulated step's terms, products and attention as far as they are below the peak."""
    terms = dict(simulated.report.prediction.breakdown_s)
    products_s = math.fsum(terms.pop(name, 0.0) for name in PRODUCTS)
    mean_s = min(products_s, _mean_products_s(simulated))
    return {KERNELS: mean_s - at_peak_s, IMBALANCE: products_s - mean_s, **terms}


def _mean_products_s(simulated: Simulated) -> float:
    """Seconds of products and attention on the mean device at work."""
    numbers = [PASS_TERMS.index(name) for name in PRODUCTS]
    total_s, devices = 0.0, 0
    stages = simulated.report.plan.program.stages
    for stage, run in zip(stages, simulated.simulation.stages, strict=True):
        terms_s = run.terms_s()
        total_s += stage.device_count * math.fsum(terms_s[number] for number in numbers)
        devices += stage.device_count
    return total_s / devices
