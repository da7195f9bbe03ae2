"""AdamW of a run: settings, and the decayed parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ...spec.workload.learning_rate import LearningRate
from ..stage.local_parameters import LocalParameter


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWOptions:
    """Hyperparameters (Loshchilov and Hutter, 2019); only matrices decay."""

    learning_rate: LearningRate = field(default_factory=LearningRate)
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1


Groups = list[dict[str, Any]]
Pair = tuple[LocalParameter, nn.Parameter]
"""A parameter of this rank with the optimizer's leaf for it."""


def decayed(pairs: Iterable[Pair], decay: float) -> Groups:
    """Non-empty groups of leaves: decayed matrices, then undecayed vectors."""
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for parameter, leaf in pairs:
        if leaf.numel():
            (matrices if _is_matrix(parameter) else vectors).append(leaf)
    groups: Groups = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_adamw(groups: Groups, options: AdamWOptions, fused: bool) -> torch.optim.AdamW:
    """Torch's AdamW over these groups, fused or foreach."""
    return torch.optim.AdamW(
        groups,
        lr=options.learning_rate.peak,
        betas=(options.beta1, options.beta2),
        eps=options.eps,
        fused=fused,
        foreach=not fused,
    )


def _is_matrix(parameter: LocalParameter) -> bool:
    return len(parameter.spec.shape) - parameter.spec.expert > 1
