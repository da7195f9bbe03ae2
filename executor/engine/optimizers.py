"""Optimizers that a run has, by the name in its plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from .adamw import AdamWOptions, Groups, make_adamw
from .lion import BETAS, MOMENT, Lion

MOMENTS: dict[str, tuple[str, ...]] = {"adamw": ("exp_avg", "exp_avg_sq"), "lion": (MOMENT,)}
"""Each optimizer's states of a parameter's shape."""
COUNTS: dict[str, tuple[str, ...]] = {"adamw": ("step",), "lion": ()}
"""Its counts of steps, one number each."""


def make_optimizer(
    name: str, groups: Groups, options: AdamWOptions, fused: bool
) -> torch.optim.Optimizer:
    """The optimizer over these groups; only AdamW has a fused step.

    Lion takes learning rate and weight decay of ``options``, and betas of its own.
    """
    if name == "lion":
        return Lion(groups, lr=options.learning_rate.peak)
    return make_adamw(groups, options, fused)


def optimizer_document(name: str, options: AdamWOptions) -> dict[str, Any]:
    """Name and hyperparameters, as checkpoints keep them."""
    document = {"name": name, **asdict(options)}
    if name == "lion":
        del document["eps"]
        document["beta1"], document["beta2"] = BETAS
    return document
