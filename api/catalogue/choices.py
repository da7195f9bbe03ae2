"""Words that a question takes, as a JSON document."""

from __future__ import annotations

from ...datasets.catalogue.stack_settings import stack_names
from ...spec.choices import (
    OBJECTIVES,
    OPTIMIZERS,
    RECOMPUTE_WORDS,
    SEQUENCE_PARALLELS,
)
from ...spec.inputs.preference import PREFERENCES
from ...spec.schedules.stage_order import ALL_KINDS
from ...spec.workload.number_formats import SHORTHANDS
from ...spec.workload.workload import TASKS
from ..frameworks.shipped import WRITTEN

TRAINABLE_FORMS = ("full", "lora:rank=16", "lora:rank=16,targets=query,value", "frozen:TOWER")
"""What ``trainable`` may look like."""


def choices_document() -> dict[str, list[str]]:
    """Words by the name of what is asked; the usual one is not marked."""
    return {
        "dtype": list(SHORTHANDS),
        "framework": list(WRITTEN),
        "objective": list(OBJECTIVES),
        "optimizer": list(OPTIMIZERS),
        "prefer": list(PREFERENCES),
        "recompute": list(RECOMPUTE_WORDS),
        "schedule": list(ALL_KINDS),
        "sp": list(SEQUENCE_PARALLELS),
        "stack": list(stack_names()),
        "task": list(TASKS),
        "trainable": list(TRAINABLE_FORMS),
    }
