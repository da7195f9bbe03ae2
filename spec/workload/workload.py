"""Workload: batch, sequence, number formats, optimizer; inputs, not searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from ..choices import Objective, Optimizer
from ..errors import InputError, nearest_name, one_of
from ..limits import MAX_SAMPLES, MAX_SEQ_LEN
from ..model.model_spec import ModelSpec
from .document_lengths import DocumentLengths
from .expert_load import ExpertLoad
from .number_formats import (
    DTYPE_BYTES,
    SHORTHANDS,
    STATE_ROLES,
    USUAL_STATES,
    Dtype,
    MatmulFormat,
    Scaling,
)
from .training import LayerTraining, Lora, layer_trainings

Task = Literal["pretrain", "sft"]

TASKS: tuple[Task, ...] = ("pretrain", "sft")


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeRecord:
    """The number format of every kind of state.

    ``param`` is the compute format; gradients accumulate in ``gradient`` and are reduced between
    ranks in ``communication``; the optimizer updates ``master``; ``moments`` are its two averages.
    ``matmul`` is the operand format of linear layers in blocks (None: as ``param``);
    ``scaling`` says if fp8_tensor scales a tensor by its own maximum (current) or those of earlier
    steps (delayed).
    """

    param: Dtype = "bf16"
    gradient: Dtype = "fp32"
    master: Dtype = "fp32"
    moments: Dtype = "fp32"
    communication: Dtype = "fp32"
    matmul: MatmulFormat | None = None
    scaling: Scaling = "current"

    @classmethod
    def from_shorthand(cls, name: str) -> DtypeRecord:
        """The record that ``--dtype`` names.

        ``bf16``/``fp16``: that compute type with fp32 for the rest; ``fp32``: all fp32; ``fp8``,
        ``fp8-delayed``, ``fp8-block``, ``mxfp8``, ``nvfp4``: as bf16, with linear layers' products
        in
        that format.

        Raises:
            InputError: unknown name.
        """
        if name not in SHORTHANDS:
            names = list(SHORTHANDS)
            allowed = ", ".join(names[:-1]) + " or " + names[-1]
            raise InputError("--dtype", name, allowed, nearest_name(name, names))
        param, matmul, scaling = SHORTHANDS[name]
        return cls(param=param, matmul=matmul, scaling=scaling)

    @property
    def products(self) -> str:
        """The format of linear layers' products, as calibrations tell them apart.

        Devices run bf16 and fp16 at one rate; every narrower format has kernels of its own.
        """
        if self.matmul is not None:
            return str(self.matmul)
        return "16-bit" if self.param in ("bf16", "fp16") else str(self.param)

    @property
    def text(self) -> str:
        """The shorthand, and formats of states that are not fp32."""
        named = [
            f"{plural} {kept}"
            for plural, kept in (("gradients", self.gradient), ("moments", self.moments))
            if kept != USUAL_STATES
        ]
        if self.master != USUAL_STATES:
            own = f"master weights {self.master}"
            named.insert(0, "no master weights" if self.master == self.param else own)
        if self.communication != self.gradient:
            named.append(f"reductions {self.communication}")
        return f"{self.shorthand} ({', '.join(named)})" if named else self.shorthand

    def with_states(self, states: Mapping[str, str]) -> DtypeRecord:
        """The record with words of state flags (``master_dtype``, …) applied.

        Gradients are reduced in the format that they are kept in, unless one is given.
        ``none`` for the master: the optimizer updates the parameters themselves.

        Raises:
            InputError: an unknown word.
        """
        changes: dict[str, Dtype] = {}
        for name, roles in STATE_ROLES.items():
            if (word := states.get(name)) is None:
                continue
            allowed = ("none", *DTYPE_BYTES) if name == "master_dtype" else tuple(DTYPE_BYTES)
            chosen = one_of(f"--{name.replace('_', '-')}", word, allowed)
            changes |= dict.fromkeys(roles, self.param if chosen == "none" else chosen)  # type: ignore[arg-type]
        return replace(self, **changes)  # type: ignore[arg-type]

    def state_word(self, name: str) -> str:
        """The word of a state flag (``master_dtype``, …) for this record."""
        kept = str(getattr(self, STATE_ROLES[name][0]))
        return "none" if name == "master_dtype" and kept == self.param else kept

    @property
    def shorthand(self) -> str:
        """The ``--dtype`` name of these computations.

        The rest of the record may differ.
        """
        key = (self.param, self.matmul, self.scaling)
        return next((name for name, value in SHORTHANDS.items() if value == key), self.param)


def state_formats(
    record: DtypeRecord, states: Mapping[str, str], optimizer: Optimizer
) -> DtypeRecord:
    """The record with words of state flags applied, as the optimizer allows.

    Raises:
        InputError: an unknown format, or one of moments that the optimizer does not choose.
    """
    moments = states.get("moment_dtype")
    if moments is not None and optimizer == "adamw8bit":
        allowed = "left out: moments of adamw8bit are 8-bit blocks"
        raise InputError("--moment-dtype", moments, allowed, "--optimizer adamw")
    return record.with_states(states)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training task: batch, sequence, number formats, optimizer.

    ``gradient_clip_norm`` is the global norm to which gradients are clipped, None for none.
    ``sft`` is the work of ``pretrain`` on packed sequences. ``frozen`` towers are not trained.
    ``expert_load``: of each layer's experts; None: an even one. ``lengths``: of the documents in a
    sequence, which do not see one another; None: one document.
    """

    task: Task = "pretrain"
    global_batch: Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
    seq_len: Annotated[int, Field(ge=1, le=MAX_SEQ_LEN)]
    dtype: DtypeRecord = DtypeRecord()
    optimizer: Optimizer = "adamw"
    trainable: Literal["full"] | Lora = "full"
    frozen: tuple[str, ...] = ()
    objective: Objective = "throughput"
    gradient_clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    expert_load: ExpertLoad | None = None
    lengths: DocumentLengths | None = None

    @property
    def adapters(self) -> Lora | None:
        """The trained adapters; None where the weights are trained."""
        return None if self.trainable == "full" else self.trainable

    def layer_trainings(self, model: ModelSpec) -> tuple[LayerTraining, ...]:
        """The training of each layer of ``model``, by layer number."""
        return layer_trainings(model, self.adapters, self.frozen)

    @property
    def document_tokens(self) -> float | None:
        """Mean tokens of a token's own document; None where a sequence is one."""
        return None if self.lengths is None else self.lengths.attended(self.seq_len)

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step."""
        return self.global_batch * self.seq_len
