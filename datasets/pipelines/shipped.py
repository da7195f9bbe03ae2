"""The stages that ship, in an explicit tuple that travels as an argument."""

from __future__ import annotations

from ..recipes.data_stage import Stages
from . import (
    exact_duplicates,
    language,
    mixture,
    near_duplicates,
    repeated_sentences,
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
    mixture.STAGE,
    windows.STAGE,
    tokens.STAGE,
)
"""One entry a module, in the order that help and docs list them."""
