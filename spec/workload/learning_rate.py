"""Learning rate schedule of ``--lr``.

    1e-3                                         the same at every step
    cosine:peak=3e-4,warmup=100,steps=10000,floor=3e-5
    linear:peak=3e-4,warmup=100,steps=10000

``warmup`` steps rise in equal parts to ``peak``; from there to step ``steps`` half a cosine wave
(Loshchilov and Hutter, arXiv:1608.03983, section 3, without restarts) or a straight line leads
to ``floor``, which holds from then on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from ..errors import InputError, nearest_name

Decay = Literal["constant", "cosine", "linear"]
DECAYS: tuple[Decay, ...] = get_args(Decay)
FLAG = "--lr"
KEYS = ("peak", "warmup", "steps", "floor")
ALLOWED = "a number, or cosine|linear|constant:peak=P,warmup=N,steps=N,floor=P"
USUAL = "cosine:peak=3e-4,warmup=100,steps=1000"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """A rate that rises to ``peak``, then decays to ``floor``.

    It reaches ``floor`` at step ``steps`` (None: the last of the run).
    """

    decay: Decay = "constant"
    peak: Annotated[float, Field(gt=0)] = 1e-3
    warmup: Annotated[int, Field(ge=0)] = 0
    steps: Annotated[int, Field(ge=1)] | None = None
    floor: Annotated[float, Field(ge=0)] = 0.0

    def __post_init__(self) -> None:
        if self.floor > self.peak:
            raise InputError(f"{FLAG}: floor", self.floor, f"at most the peak {self.peak:g}")
        if self.steps is not None and self.warmup > self.steps:
            raise InputError(f"{FLAG}: warmup", self.warmup, f"at most steps, {self.steps}")

    def at(self, step: int, last: int) -> float:
        """The rate of a step.

        Args:
            step: number of steps taken before it.
            last: number of steps that the run is to reach.
        """
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if self.decay == "constant":
            return self.peak
        end = self.steps or last
        progress = min(1.0, (step - self.warmup) / max(1, end - self.warmup))
        remaining = (
            1 - progress if self.decay == "linear" else (1 + math.cos(math.pi * progress)) / 2
        )
        return self.floor + (self.peak - self.floor) * remaining


def learning_rate(text: str | None) -> LearningRate:
    """Parse a typed learning rate; None gives the default.

    Raises:
        InputError: no number, unknown word or key, or a value out of its range.
    """
    if text is None:
        return LearningRate()
    kind, _, options = text.partition(":")
    if kind not in DECAYS:
        if options or _number(text) is None:
            raise InputError(FLAG, text, ALLOWED, nearest_name(kind, DECAYS) or USUAL)
        return LearningRate(peak=_positive(FLAG, text))
    values = dict(_pair(part) for part in options.split(",")) if options else {}
    return LearningRate(
        decay=next(decay for decay in DECAYS if decay == kind),
        peak=_positive(f"{FLAG}: peak", values.get("peak", str(LearningRate().peak))),
        warmup=_count("warmup", values.get("warmup", "0"), 0),
        steps=_count("steps", values["steps"], 1) if "steps" in values else None,
        floor=_positive(f"{FLAG}: floor", values.get("floor", "0"), or_zero=True),
    )


def _pair(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    if key not in KEYS:
        raise InputError(FLAG, part, ", ".join(f"{k}=…" for k in KEYS), nearest_name(key, KEYS))
    return key, value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _positive(field: str, text: str, or_zero: bool = False) -> float:
    value = _number(text)
    if value is None or value < 0 or (value == 0 and not or_zero):
        raise InputError(field, text, "a number " + ("of at least 0" if or_zero else "above 0"))
    return value


def _count(key: str, text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{FLAG}: {key}", text, f"a whole number of at least {least}")
    return int(text)


__all__ = ["DECAYS", "FLAG", "LearningRate", "learning_rate"]
