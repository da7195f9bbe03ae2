"""Load of experts: the share of a layer's rows that each of its experts gets.

Rank r of ``ep`` that split a layer's experts holds those from number r · experts / ep on, as many
as every other: the executor places them in the order of their numbers, and inside an exchange over
two levels node by node. So shares stand in that order, and the fullest rank is the fullest of
``ep`` equal parts of the list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from ..errors import InputError
from ..model.experts import experts_of
from ..model.feed_forward import Moe
from ..model.model_spec import ModelSpec

Share = Annotated[float, Field(ge=0, le=1)]
Shares = Annotated[tuple[Share, ...], Field(min_length=1)]
EVEN = "even"
MAX_EXPONENT = 8.0
SHARE_DIGITS = 7
POWER = "power"
WORDS = "even, power:A (the k-th expert's share falls as k^-A) or a file of a routing trace"
BUCKETS_PER_OCTAVE = 16
"""Fullest over mean is priced at the nearest of so many steps to its double: 2.2 % at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLoad:
    """Shares in proportion to k^-``exponent`` for the k-th expert of each layer.

    A token has an expert once, so no share exceeds one of its experts; others take what is beyond.
    """

    kind: Literal["power"] = "power"
    exponent: Annotated[float, Field(gt=0, le=MAX_EXPONENT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLoad:
    """Shares of a layer's experts, by number, in two of the recorded steps.

    Steps are ranked by their fullest expert: ``median`` is the middle one of them, ``p95`` the one
    that 95 % do not exceed.
    """

    layer: Annotated[int, Field(ge=0)]
    median: Shares
    p95: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedLoad:
    """Shares from a routing trace: of so many ``steps``, and the ``digest`` of its file."""

    kind: Literal["trace"] = "trace"
    steps: Annotated[int, Field(ge=1)]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    layers: Annotated[tuple[LayerLoad, ...], Field(min_length=1)]


ExpertLoad = Annotated[PowerLoad | RoutedLoad, Field(discriminator="kind")]


def power_load(text: str, field: str) -> PowerLoad | None:
    """The load of a typed exponent; None for 0, which is even.

    Raises:
        InputError: no number from 0 to ``MAX_EXPONENT``; ``field`` says where it was given.
    """
    allowed = f"power: and a number from 0 to {MAX_EXPONENT:g}"
    try:
        exponent = float(text)
    except ValueError:
        raise InputError(field, f"power:{text}", allowed, "power:1") from None
    if not 0 <= exponent <= MAX_EXPONENT:
        near = f"power:{MAX_EXPONENT:g}" if exponent > MAX_EXPONENT else "even"
        raise InputError(field, f"power:{text}", allowed, near)
    return PowerLoad(exponent=exponent) if exponent else None


def typed_load(word: str, field: str) -> PowerLoad | None:
    """The load of ``even`` or ``power:A``; None for an even one.

    Raises:
        InputError: another word; ``field`` says where it was given.
    """
    name, colon, text = word.strip().partition(":")
    if name == POWER and colon:
        return power_load(text, field)
    if word.strip() != EVEN:
        raise InputError(field, word, "even or power:A, such as power:1", EVEN)
    return None


def load_text(load: PowerLoad | RoutedLoad | None) -> str:
    """A load in words."""
    if load is None:
        return EVEN
    if isinstance(load, PowerLoad):
        return f"{POWER}:{load.exponent:g}"
    return f"trace of {load.steps} steps ({load.digest[:19]})"


def load_violation(model: ModelSpec, load: PowerLoad | RoutedLoad | None) -> str | None:
    """Reason why a load is not one of this model, or None."""
    if load is None:
        return None
    experts = expert_counts(model)
    if not experts:
        return f"load of experts {load_text(load)}: model {model.name} has none"
    if isinstance(load, PowerLoad):
        return None
    layers = [entry.layer for entry in load.layers]
    if layers != list(experts):
        given, own = _counted(layers), _counted(list(experts))
        return f"a routing trace of {given}; the model has experts in {own}"
    for entry in load.layers:
        for shares in (entry.median, entry.p95):
            if len(shares) != experts[entry.layer]:
                given = f"a routing trace of {len(shares)} experts in layer {entry.layer}"
                return f"{given}, which has {experts[entry.layer]}"
            if abs(sum(shares) - 1) > len(shares) * 10.0**-SHARE_DIGITS:
                return f"shares of the experts of layer {entry.layer} add up to {sum(shares):g}"
    return None


def _counted(layers: list[int]) -> str:
    if not layers:
        return "no layer"
    return f"{len(layers)} layers ({layers[0]} to {layers[-1]})" if layers[1:] else f"{layers[0]}"


def expert_counts(model: ModelSpec) -> dict[int, int]:
    """Experts of each layer that has any, by the layer's number."""
    return {number: moe.experts for number, moe in _mixtures(model).items()}


def _mixtures(model: ModelSpec) -> dict[int, Moe]:
    found = ((n, experts_of(layer)) for n, layer in enumerate(model.layers()))
    return {number: moe for number, moe in found if moe is not None}


Fullest = tuple[tuple[int, float], ...]
"""Rows of the fullest of so many equal parts of a layer's experts, over their mean."""


@dataclass(frozen=True, slots=True)
class LoadBucket:
    """A layer's load as it is priced, by the parts that its experts are split into.

    ``rows`` of the fullest part at the median of steps; ``memory_rows`` at the 95th percentile.
    """

    rows: Fullest
    memory_rows: Fullest


def layer_buckets(
    model: ModelSpec, load: PowerLoad | RoutedLoad | None
) -> tuple[LoadBucket | None, ...]:
    """The load of every layer of the model; None where it is even, or there are no experts.

    Where rows are filled up to a capacity, or experts choose or mix, the load is even.
    """
    layers = model.layers()
    if load is None:
        return (None,) * len(layers)
    mixtures, by_layer = _mixtures(model), _shares(load)
    buckets: list[LoadBucket | None] = []
    for number in range(len(layers)):
        moe = mixtures.get(number)
        if moe is None or moe.fills_rows:
            buckets.append(None)
        elif isinstance(load, PowerLoad):
            shares = power_shares(moe.experts, load.exponent, moe.topk)
            buckets.append(_bucket(shares, shares))
        else:
            entry = by_layer[number]
            buckets.append(_bucket(entry.median, entry.p95))
    return tuple(buckets)


def _shares(load: PowerLoad | RoutedLoad) -> Mapping[int, LayerLoad]:
    return {} if isinstance(load, PowerLoad) else {entry.layer: entry for entry in load.layers}


def power_shares(experts: int, exponent: float, topk: int = 1) -> tuple[float, ...]:
    """Shares of experts that fall as k^-``exponent``, at most one of each token's ``topk``."""
    weights = [k**-exponent for k in range(1, experts + 1)]
    full = next(n for n in range(topk) if weights[n] * (topk - n) <= sum(weights[n:]) * (1 + 1e-12))
    rest, left = sum(weights[full:]), 1 - full / topk
    return (1 / topk,) * full + tuple(left * weight / rest for weight in weights[full:])


def fullest_over_mean(shares: tuple[float, ...], parts: int) -> float:
    """Share of the fullest of so many equal parts, over their mean."""
    size = len(shares) // parts
    sums = (sum(shares[part * size : (part + 1) * size]) for part in range(parts))
    return parts * max(sums) / sum(shares)


@lru_cache(maxsize=1024)
def _bucket(median: tuple[float, ...], p95: tuple[float, ...]) -> LoadBucket | None:
    """Buckets of a layer's shares; None if every split of them is even."""
    parts = [n for n in range(2, len(median) + 1) if len(median) % n == 0]
    rows = tuple((n, _rounded(fullest_over_mean(median, n))) for n in parts)
    late = tuple((n, _rounded(fullest_over_mean(p95, n))) for n in parts)
    memory = tuple((n, max(a, b)) for (n, a), (_, b) in zip(rows, late, strict=True))
    return None if all(over == 1 for _, over in memory) else LoadBucket(rows, memory)


def _rounded(over: float) -> float:
    steps = round(math.log2(over) * BUCKETS_PER_OCTAVE)
    return float(2 ** (steps / BUCKETS_PER_OCTAVE))
