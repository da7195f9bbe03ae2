"""Goals: what ``--objective`` asks for, with its grain and its prices.

- ``throughput``: the least step time.
- ``cost``: the least cost per token under ``--prices``.
- ``largest-batch[:GRAIN]``: the largest global batch that fits without gradient accumulation:
  a pipeline of p stages is filled once, by at most p micro-batches. (With accumulation memory
  limits no batch.) The batch is a multiple of GRAIN, 1 if left out.
- ``largest-sequence[:GRAIN]``: the longest sequence at the global batch given, a multiple of
  GRAIN, 1024 if left out.

The largest ones answer with the fastest plan at what they find.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.choices import OBJECTIVES, Objective
from ...spec.errors import InputError, nearest_name
from ...spec.model.model_spec import EmbeddingLayer, ModelSpec
from ...spec.model.towers import inserted_tokens

OBJECTIVE_FLAG = "--objective"
DEFAULT_GRAINS: dict[Objective, int] = {"largest-batch": 1, "largest-sequence": 1024}
"""Objectives that find a size, and what it is a multiple of where nobody said."""
MAX_GRAIN = 2**20
MAX_SEQUENCE = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveChoice:
    """An objective, and for the largest ones what the size is a multiple of (else 0)."""

    objective: Objective = "throughput"
    grain: int = 0


THROUGHPUT = ObjectiveChoice()


def initial_sequence(model: ModelSpec, objective_choice: ObjectiveChoice, given: int | None) -> int:
    """Where the search for the longest sequence begins: what was given, if the model takes it."""
    least, most = sequence_limits(model, objective_choice)
    return given if given is not None and least <= given <= most else least


def sequence_limits(model: ModelSpec, objective_choice: ObjectiveChoice) -> tuple[int, int]:
    """The shortest and the longest sequence that a model takes, as multiples of the grain.

    Raises:
        InputError: it has a sequence of its own, or takes none as long as the grain.
    """
    if model.towers[0].seq_len is not None and len(model.towers) == 1:
        allowed = f"throughput or cost: {model.name} has a sequence of its own"
        raise InputError(OBJECTIVE_FLAG, objective_choice.objective, allowed, "throughput")
    tables = [x.positions for x in model.kinds() if isinstance(x, EmbeddingLayer) and x.positions]
    most = min(tables, default=MAX_SEQUENCE)
    if most < objective_choice.grain:
        given, near = (
            f"{objective_choice.objective}:{objective_choice.grain}",
            f"{objective_choice.objective}:{most}",
        )
        raise InputError(
            OBJECTIVE_FLAG, given, f"a grain of at most the model's {most} positions", near
        )
    least = max(objective_choice.grain, inserted_tokens(model, most))
    return -(-least // objective_choice.grain) * objective_choice.grain, most


def objective_of(given: str | None) -> ObjectiveChoice:
    """The goal that was typed.

    Raises:
        InputError: an unknown objective, or a grain that is none.
    """
    if given is None:
        return THROUGHPUT
    name, colon, text = given.partition(":")
    found = next((objective for objective in OBJECTIVES if objective == name), None)
    if found is None:
        raise InputError(
            OBJECTIVE_FLAG, given, ", ".join(OBJECTIVES), nearest_name(name, OBJECTIVES)
        )
    usual = DEFAULT_GRAINS.get(found, 0)
    if not colon:
        return ObjectiveChoice(objective=found, grain=usual)
    if not usual:
        raise InputError(OBJECTIVE_FLAG, given, f"{found} alone", found)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_GRAIN):
        allowed = f"{found}:GRAIN with a whole number from 1 to {MAX_GRAIN}"
        raise InputError(OBJECTIVE_FLAG, given, allowed, f"{found}:{usual}")
    return ObjectiveChoice(objective=found, grain=int(text))
