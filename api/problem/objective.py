"""Objectives as typed in ``--objective``.

- ``throughput``: the least step time.
- ``cost``: the least cost per token under ``--prices``.
- ``largest-batch[:GRAIN]``: the largest global batch that fits without gradient accumulation:
  a pipeline of p stages is filled once, by at most p micro-batches. (With accumulation memory
  limits no batch.) The batch is a multiple of GRAIN, 1 if left out.
- ``largest-sequence[:GRAIN]``: the longest sequence at the global batch given, a multiple of
  GRAIN, 1024 if left out.

The last two answer with the fastest plan at what they find.
"""

from __future__ import annotations

from ...planner.solve.problem import THROUGHPUT, ObjectiveChoice
from ...planner.solve.sequence_limits import OBJECTIVE_FLAG, sequence_limits
from ...spec.choices import OBJECTIVES, Objective
from ...spec.errors import InputError, nearest_name
from ...spec.model.model_spec import ModelSpec

DEFAULT_GRAINS: dict[Objective, int] = {"largest-batch": 1, "largest-sequence": 1024}
"""Objectives that find a size, and the default grain that it is a multiple of."""
MAX_GRAIN = 2**20


def initial_sequence(model: ModelSpec, choice: ObjectiveChoice, seq_len: int | None) -> int:
    """First length of a longest-sequence search: the typed one, if legal."""
    least, most = sequence_limits(model, choice)
    return seq_len if seq_len is not None and least <= seq_len <= most else least


def objective_of(choice_text: str | None) -> ObjectiveChoice:
    """Parse the objective.

    Raises:
        InputError: an unknown objective, or an invalid grain.
    """
    if choice_text is None:
        return THROUGHPUT
    name, colon, text = choice_text.partition(":")
    objective = next((choice for choice in OBJECTIVES if choice == name), None)
    if objective is None:
        raise InputError(
            OBJECTIVE_FLAG, choice_text, ", ".join(OBJECTIVES), nearest_name(name, OBJECTIVES)
        )
    usual = DEFAULT_GRAINS.get(objective, 0)
    if not colon:
        return ObjectiveChoice(objective=objective, grain=usual)
    if not usual:
        raise InputError(OBJECTIVE_FLAG, choice_text, f"{objective} alone", objective)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_GRAIN):
        allowed = f"{objective}:GRAIN with a whole number from 1 to {MAX_GRAIN}"
        raise InputError(OBJECTIVE_FLAG, choice_text, allowed, f"{objective}:{usual}")
    return ObjectiveChoice(objective=objective, grain=int(text))
