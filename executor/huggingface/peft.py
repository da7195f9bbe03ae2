"""Adapters in PEFT's format: a folder beside their base checkpoint.

PEFT has one adapter per module. Where a checkpoint fuses several projections, their adapters become
one of joint rank: A matrices stacked, each B in its projection's rows and its own A's columns.
``rank_pattern`` and ``alpha_pattern`` record it and keep alpha / rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...spec.model.model_spec import ModelSpec
from ...spec.workload.training import Lora, adapter_specs
from .families import layer_pieces
from .tensor_piece import TensorPieces

STEM = "adapter_model"
CONFIG_NAME = "adapter_config.json"
PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedModule:
    """A checkpoint module with its adapters.

    ``short``: the name within a block; ``slots``: our projections and their first rows; ``shapes``:
    of joint A and B.
    """

    name: str
    short: str
    slots: tuple[tuple[str, int], ...]
    shapes: tuple[tuple[int, int], tuple[int, int]]
    transposed: bool

    @property
    def tensor_names(self) -> tuple[str, str]:
        """PEFT's names of A and B."""
        start = f"{PREFIX}{self.name}"
        return f"{start}.lora_A.weight", f"{start}.lora_B.weight"

    def tensors(self, values: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """A and B from our whole matrices by name."""
        a = torch.cat([values[f"{slot}.adapter_a"] for slot, _ in self.slots])
        b = torch.zeros(self.shapes[1])
        column = 0
        for slot, first in self.slots:
            adapter_b = values[f"{slot}.adapter_b"]
            b[first : first + adapter_b.shape[0], column : column + adapter_b.shape[1]] = adapter_b
            column += adapter_b.shape[1]
        return a, b


def adapted_modules(
    model: ModelSpec, index: int, seq_len: int, pieces: TensorPieces, lora: Lora
) -> list[AdaptedModule]:
    """The modules of a layer with adapters."""
    groups: dict[str, list[tuple[str, int]]] = {}
    outs: dict[str, tuple[int, int, bool]] = {}
    for spec, piece in layer_pieces(model, index, seq_len, pieces):
        if adapter_specs(spec, lora):
            module = piece.name.removesuffix(".weight")
            groups.setdefault(module, []).append((spec.name.removesuffix(".weight"), piece.first))
            out = piece.shape[1] if piece.transposed else piece.shape[0]
            outs[module] = (out, spec.shape[1], piece.transposed)
    modules = []
    for name, slots in groups.items():
        out, width, transposed = outs[name]
        rank = lora.rank * len(slots)
        modules.append(
            AdaptedModule(
                name=name,
                short=name.split(f".{index - 1}.", 1)[1],
                slots=tuple(slots),
                shapes=((rank, width), (out, rank)),
                transposed=transposed,
            )
        )
    return modules


def adapter_config(modules: list[AdaptedModule], lora: Lora, base: str) -> dict[str, Any]:
    """PEFT's ``adapter_config.json`` for all layers' modules and a base checkpoint's folder."""
    joint = {m.short: len(m.slots) for m in modules if len(m.slots) > 1}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted({m.short for m in modules}),
        "rank_pattern": {name: lora.rank * count for name, count in joint.items()},
        "alpha_pattern": {name: lora.alpha * count for name, count in joint.items()},
        "bias": "none",
        "fan_in_fan_out": any(m.transposed for m in modules),
        "inference_mode": True,
    }
