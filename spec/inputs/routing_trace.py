"""Routing traces: tokens that each expert of a layer got in each step, as CSV.

    step,layer,expert,tokens
    1,1,0,37

Steps, layers and experts rise from row to row, and every step has every expert of the same layers,
those without a token too. Layers are numbered as in a plan, experts as ranks hold them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from ..errors import InputError
from ..model.model_spec import ModelSpec
from ..workload.expert_load import SHARE_DIGITS, LayerLoad, RoutedLoad, expert_counts

HEADER = "step,layer,expert,tokens"
MAX_TRACE_BYTES = 128 * 1024 * 1024
MAX_TOKENS = 2**53
LATE = 0.95
"""Share of the steps that the later summary covers."""


class RoutingRow(NamedTuple):
    """Tokens of an expert of a layer in a step."""

    step: int
    layer: int
    expert: int
    tokens: int


def require_experts(model: ModelSpec, path: str) -> None:
    """Refuse to write a trace of a model without experts.

    Raises:
        InputError: it has none.
    """
    if not expert_counts(model):
        allowed = f"a model with experts ({model.name} has none)"
        raise InputError("--routing-trace", path, allowed)


def trace_text(rows: Iterable[RoutingRow]) -> str:
    """A trace of these rows, which are in order."""
    lines = (f"{row.step},{row.layer},{row.expert},{row.tokens}" for row in rows)
    return "\n".join((HEADER, *lines)) + "\n"


def read_trace(text: str, where: str) -> RoutedLoad:
    """The load of a trace's text.

    Raises:
        InputError: another header, a row that is not four whole numbers, rows out of order, a step
            without an expert that the first one has, a layer without a token.
    """
    counts = _counts(_rows(text, where), where)
    steps = _steps(counts, where)
    first = next(iter(steps.values()))
    layers = []
    for layer in first:
        shares = [_shares(step[layer]) for step in steps.values()]
        ranked = sorted(shares, key=max)
        layers.append(LayerLoad(layer=layer, median=_at(ranked, 0.5), p95=_at(ranked, LATE)))
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return RoutedLoad(steps=len(steps), digest=digest, layers=tuple(layers))


def _rows(text: str, where: str) -> Iterable[tuple[int, RoutingRow]]:
    """Rows with the numbers of their lines."""
    lines = text.splitlines()
    header = lines[0].strip() if lines else ""
    if header != HEADER:
        raise InputError(f"{where}, line 1", header[:80] or "nothing", f"the header {HEADER}")
    before: RoutingRow | None = None
    for number, line in enumerate(lines[1:], 2):
        row = _row(line, f"{where}, line {number}")
        if before is not None and row[:3] <= before[:3]:
            allowed = "rows in order of step, layer and expert, each once"
            raise InputError(f"{where}, line {number}", line[:80], allowed)
        before = row
        yield number, row


def _row(line: str, where: str) -> RoutingRow:
    cells = line.split(",")
    if len(cells) != len(RoutingRow._fields):
        raise InputError(where, line[:80] or "nothing", f"four numbers: {HEADER}")
    for name, cell in zip(RoutingRow._fields, cells, strict=True):
        if not (cell.isascii() and cell.isdigit()) or int(cell) > MAX_TOKENS:
            raise InputError(f"{where}: {name}", cell[:40], "a whole number from 0 to 2^53")
    return RoutingRow(*map(int, cells))


Counts = dict[int, dict[int, list[int]]]
"""Tokens by step and layer, of experts in order."""


def _counts(rows: Iterable[tuple[int, RoutingRow]], where: str) -> Counts:
    found: Counts = {}
    for number, (step, layer, expert, tokens) in rows:
        counts = found.setdefault(step, {}).setdefault(layer, [])
        if expert != len(counts):
            place = f"{where}, line {number}: expert"
            raise InputError(place, expert, "every expert of a layer from 0 on", len(counts))
        counts.append(tokens)
    if not found:
        raise InputError(where, "no rows", "at least one step")
    return found


def _steps(counts: Counts, where: str) -> Counts:
    """The counts, once every step is found to have the same experts."""
    first, sizes = next((step, _sizes(layers)) for step, layers in counts.items())
    for step, layers in counts.items():
        if _sizes(layers) != sizes:
            allowed = f"the layers and experts of step {first}: {_sizes_text(sizes)}"
            raise InputError(f"{where}, step {step}", _sizes_text(_sizes(layers)), allowed)
        for layer, tokens in layers.items():
            if not any(tokens):
                place = f"{where}, step {step}, layer {layer}"
                raise InputError(place, "no tokens", "at least one token for some expert")
    return counts


def _sizes(layers: Mapping[int, list[int]]) -> dict[int, int]:
    return {layer: len(tokens) for layer, tokens in layers.items()}


def _sizes_text(sizes: Mapping[int, int]) -> str:
    runs = [(list(group), n) for n, group in groupby(sizes, key=lambda layer: sizes[layer])]
    return ", ".join(f"{n} experts in {len(layers)} layers" for layers, n in runs[:4])


def _shares(tokens: list[int]) -> tuple[float, ...]:
    total = sum(tokens)
    return tuple(round(count / total, SHARE_DIGITS) for count in tokens)


def _at(ranked: list[tuple[float, ...]], share: float) -> tuple[float, ...]:
    """The first of the sorted values that such a share of them does not exceed."""
    return ranked[math.ceil(share * len(ranked)) - 1]
