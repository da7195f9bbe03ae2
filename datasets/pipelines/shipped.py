"""The stages that ship, in an explicit tuple that travels as an argument."""

from __future__ import annotations

from ..recipes.data_stage import Stages
from . import (
    contamination,
    exact_duplicates,
    language,
    mixture,
    near_duplicates,
    personal_data,
    quality,
    repeated_sentences,
    repository_order,
    rules,
    tokens,
    windows,
)

STAGES: Stages = (
    exact_duplicates.STAGE,
    near_duplicates.STAGE,
    repeated_sentences.STAGE,
    rules.STAGE,
    language.STAGE,
    personal_data.STAGE,
    quality.STAGE,
    repository_order.STAGE,
    contamination.STAGE,
    mixture.STAGE,
    windows.STAGE,
    tokens.STAGE,
)
"""One entry a module, in the order that help and docs list them."""
