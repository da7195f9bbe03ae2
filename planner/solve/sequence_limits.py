"""Shortest and longest sequence of a model, for the longest-sequence objective."""

from __future__ import annotations

from ...spec.errors import InputError
from ...spec.limits import MAX_SEQ_LEN
from ...spec.model.model_spec import EmbeddingLayer, ModelSpec
from ...spec.model.towers import inserted_tokens
from .problem import ObjectiveChoice

OBJECTIVE_FLAG = "--objective"


def sequence_limits(model: ModelSpec, choice: ObjectiveChoice) -> tuple[int, int]:
    """Shortest legal multiple of the grain, and the model's longest sequence.

    Raises:
        InputError: the model fixes its sequence, or takes none as long as the grain.
    """
    if model.towers[0].seq_len is not None and len(model.towers) == 1:
        allowed = f"throughput or cost: {model.name} has a sequence of its own"
        raise InputError(OBJECTIVE_FLAG, choice.objective, allowed, "throughput")
    tables = [x.positions for x in model.kinds() if isinstance(x, EmbeddingLayer) and x.positions]
    most = min(tables, default=MAX_SEQ_LEN)
    if most < choice.grain:
        requested, near = f"{choice.objective}:{choice.grain}", f"{choice.objective}:{most}"
        allowed = f"a grain of at most the model's {most} positions"
        raise InputError(OBJECTIVE_FLAG, requested, allowed, near)
    least = max(choice.grain, inserted_tokens(model, most))
    return -(-least // choice.grain) * choice.grain, most
