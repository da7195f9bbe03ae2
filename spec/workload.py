"""Workload: what is asked of the model; inputs that are never searched unless asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from .errors import InputError, nearest_name

Dtype = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal["adamw"]
Objective = Literal["throughput"]

DTYPE_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeRecord:
    """The number format of every kind of state.

    ``param`` is what kernels compute in; ``gradient`` what gradients accumulate in;
    ``master`` what the optimizer updates; ``moments`` its two averages; ``communication``
    what gradients are reduced in between ranks.
    """

    param: Dtype = "bf16"
    gradient: Dtype = "fp32"
    master: Dtype = "fp32"
    moments: Dtype = "fp32"
    communication: Dtype = "fp32"

    @classmethod
    def from_shorthand(cls, name: str) -> DtypeRecord:
        """``bf16``/``fp16``: that compute type with fp32 for the rest; ``fp32``: all fp32."""
        if name not in DTYPE_BYTES:
            raise InputError("--dtype", name, "fp32, bf16 or fp16", nearest_name(name, DTYPE_BYTES))
        return cls(param=name)  # type: ignore[arg-type]

    def bytes_of(self, role: str) -> int:
        """Bytes of one element of the state called ``role``."""
        return DTYPE_BYTES[getattr(self, role)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training task: batch and sequence in samples and tokens, number formats, optimizer.

    ``gradient_clip_norm`` is the global norm to which gradients are clipped, None for none.
    """

    task: Literal["pretrain"] = "pretrain"
    global_batch: Annotated[int, Field(ge=1, le=2**40)]
    seq_len: Annotated[int, Field(ge=1, le=2**40)]
    dtype: DtypeRecord = DtypeRecord()
    optimizer: Optimizer = "adamw"
    trainable: Literal["full"] = "full"
    objective: Objective = "throughput"
    gradient_clip_norm: Annotated[float, Field(gt=0)] | None = 1.0

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step."""
        return self.global_batch * self.seq_len
