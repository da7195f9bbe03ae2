"""Pins: decisions fixed by the user, on every layer or a range.

``tp=8`` fixes the tensor-parallel degree of every layer, ``recompute@1-12=full`` only that of
layers 1 to 12 (embedding and head counted, ``@5`` for one layer). Keys are simulate's flags and
the names of techniques.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...spec.choices import SEQUENCE_PARALLELS
from ...spec.errors import InputError, nearest_name, one_of
from ...spec.model.experts import experts_of
from ...spec.model.layers import Layer, has_block
from ...spec.schedules.stage_order import ALL_KINDS
from ...spec.strategy import LEVEL_NAMES, LayerStrategy, Sharding
from ...spec.technique import layer_kind_violation
from ...spec.technique_values import value_of_word
from ..technique import KnownTechniques
from ..techniques import SHIPPED
from .shard_levels import EVERY_LEVEL, SECOND_COPY, level_degrees

PIPELINE_KEYS = ("pp", "vpp", "schedule", "micro_batch", "dp")
CORE_KEYS = ("tp", "cp", "ep", "etp", "sp", "shard", "recompute")
UNSHARDED = ("zero0", "1/1/1")
WORDS: dict[str, tuple[str, ...]] = {
    "sp": SEQUENCE_PARALLELS,
    "schedule": ALL_KINDS,
}


def layer_keys(techniques: KnownTechniques) -> tuple[str, ...]:
    """Keys of pins on layers."""
    return (*CORE_KEYS, *(n for n in techniques.names if n not in techniques.of_programs))


def plan_keys(techniques: KnownTechniques) -> tuple[str, ...]:
    """Keys of pins on a whole plan."""
    return (*PIPELINE_KEYS, *techniques.of_programs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One fixed decision; ``layers`` None means all layers."""

    key: str
    value: int | str
    layers: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """The pin as typed."""
        if self.layers is None:
            return f"{self.key}={self.value}"
        first, last = self.layers
        return f"{self.key}@{first}-{last}={self.value}"

    def covers(self, layer: int) -> bool:
        """True if the pin covers this layer."""
        return self.layers is None or self.layers[0] <= layer <= self.layers[1]


def parse_pin(
    text: str, layer_count: int, field: str = "--pin", techniques: KnownTechniques = SHIPPED
) -> Pin:
    """Parse ``KEY[@LAYERS]=VALUE``.

    Args:
        text: as typed.
        layer_count: layers of the model, embedding and head counted.
        field: named in errors.
        techniques: allowed as keys.

    Raises:
        InputError: unknown key, layers outside the model, or an impossible value.
    """
    head, sign, value = text.partition("=")
    key, at, layers = head.partition("@")
    key = key.strip().replace("-", "_")
    if not sign or not value.strip():
        raise InputError(field, text, "KEY=VALUE or KEY@LAYERS=VALUE", "tp=8")
    whole = plan_keys(techniques)
    keys = (*layer_keys(techniques), *whole)
    if key not in keys:
        raise InputError(field, key, "one of " + ", ".join(keys), nearest_name(key, keys))
    span = _layer_range(layers, layer_count, field) if at else None
    if span is not None and key in whole:
        raise InputError(
            field, text, f"{key} for the whole plan, without @LAYERS", f"{key}={value}"
        )
    return Pin(key=key, value=_value(key, value.strip(), field, techniques), layers=span)


def _layer_range(text: str, layer_count: int, field: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    allowed = f"layers 0 to {layer_count - 1}, such as 1-{layer_count - 2}"
    if not first.isdigit() or not (last.isdigit() or not last):
        raise InputError(field, text, allowed)
    span = int(first), int(last or first)
    if not span[0] <= span[1] < layer_count:
        raise InputError(field, text, allowed, f"0-{layer_count - 1}")
    return span


def _value(key: str, text: str, field: str, techniques: KnownTechniques) -> int | str:
    if key == "recompute":  # read with the names of the model's results
        return text
    if key in WORDS:
        return one_of(f"{field} {key}", text, WORDS[key])
    technique = techniques.value(key)
    if technique is not None:
        techniques.pinned(technique, text, f"{field} {key}")
        return text
    if key == "shard":
        _check_form(text, f"{field} shard")
        return text
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{field} {key}", text, "a positive whole number")
    return int(text)


def _check_form(text: str, field: str) -> None:
    first, beside, second = text.partition(SECOND_COPY)
    heads = [first, f"hsdp{second}"] if beside else [re.sub("^hpz(?=:|$)", "hsdp", text)]
    for head in heads:
        degrees = level_degrees(head, dict.fromkeys(EVERY_LEVEL, 1), 1, 1, field)
        try:
            Sharding.from_text(degrees, _any_degree(degrees), field)
        except InputError:
            kinds = ("hsdp", "hpz")
            forms = (*LEVEL_NAMES, *kinds, *(f"{k}:{x}" for k in kinds for x in EVERY_LEVEL))
            allowed = (
                "zero0 to zero3, hsdp or hpz[:LEVEL|:DEGREE], or P/G/O[+hpz:D], each a degree "
                "or a level"
            )
            raise InputError(field, text, allowed, nearest_name(text, forms)) from None


def _any_degree(text: str) -> int:
    """Multiple of every degree in ``text``, to check the form only."""
    product = 1
    for part in text.replace("hsdp:", "").split("/"):
        if part.isdigit() and 0 < int(part) < 10**9:
            product *= int(part)
    return product


def layer_allows(
    pins: tuple[Pin, ...],
    index: int,
    layer: Layer,
    strategy: LayerStrategy,
    ranks: int,
    levels: Mapping[str, int],
    techniques: KnownTechniques = SHIPPED,
) -> bool:
    """True if a layer's strategy agrees with every pin on it.

    Args:
        pins: all pins.
        index: number of the layer.
        layer: the layer.
        strategy: its decisions.
        ranks: of its stage.
        levels: devices in a group of each link level.
        techniques: allowed as keys.
    """
    return all(
        value_allows(pin.key, pin.value, layer, strategy, ranks, levels, techniques)
        for pin in pins
        if pin.key not in PIPELINE_KEYS and pin.covers(index)
    )


def value_allows(
    key: str,
    value: object,
    layer: Layer,
    strategy: LayerStrategy,
    ranks: int,
    levels: Mapping[str, int],
    techniques: KnownTechniques = SHIPPED,
) -> bool:
    """True if a strategy has this value of one of ``layer_keys``.

    ``recompute`` applies to blocks only, ``ep`` and ``etp`` to layers with experts, ``sp`` to
    layers with tp > 1, a technique to its layer types; other layers pass. A sharding level is
    identified by its degrees: over one rank every level is the same.
    """
    if key in ("tp", "cp"):
        return bool(getattr(strategy, key) == value)
    if key in ("ep", "etp"):
        return experts_of(layer) is None or bool(getattr(strategy, key) == value)
    if key == "sp":
        return strategy.tp == 1 or strategy.sequence_parallel == value
    if key == "recompute":
        return not has_block(layer) or strategy.recompute == value
    if (technique := techniques.value(key)) is not None:
        if layer_kind_violation(technique, layer, technique.kinds.plannable) is not None:
            return True
        return bool(technique.of(strategy) == value_of_word(technique, str(value), key))
    n = strategy.state_ranks(ranks)
    return sharding_of(str(value), levels, strategy.weight_split, n) == strategy.shard


def pinned_shardings(
    pins: tuple[Pin, ...], layer: int, levels: Mapping[str, int], split: int, ranks: int
) -> list[Sharding]:
    """Pinned shardings of a layer that divide the ranks.

    Args:
        pins: all pins.
        layer: number of the layer.
        levels: devices in a group of each link level.
        split: ranks that a weight is split over.
        ranks: ranks with the same slice of the weights.
    """
    texts = [str(p.value) for p in pins if p.key == "shard" and p.covers(layer)]
    shards = (sharding_of(text, levels, split, ranks) for text in texts)
    return [shard for shard in shards if shard is not None]


@lru_cache(maxsize=4096)
def _resolved(
    text: str, levels: tuple[tuple[str, int], ...], split: int, ranks: int
) -> Sharding | None:
    try:
        return Sharding.from_text(level_degrees(text, dict(levels), split, ranks, "--pin"), ranks)
    except InputError:  # the degrees do not divide this number of ranks
        return None


def sharding_of(text: str, levels: Mapping[str, int], split: int, ranks: int) -> Sharding | None:
    """Degrees of a typed sharding over ``ranks`` ranks; None if indivisible."""
    return _resolved(text, tuple(levels.items()), split, ranks)
