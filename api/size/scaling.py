"""Strong and weak scaling: the batch of a step at each number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ...spec.errors import InputError, nearest_name
from ...spec.report.report import Assumption
from ..problem.resolve import Inputs

Scaling = Literal["strong", "weak", "both"]
SCALINGS: tuple[str, ...] = get_args(Scaling)
TOO_SMALL = "less than a sample a step"


def checked_scaling(scaling: str) -> None:
    """Refuse another word.

    Raises:
        InputError: none of ``SCALINGS``.
    """
    if scaling not in SCALINGS:
        near = nearest_name(str(scaling), SCALINGS, count=1)
        raise InputError("--scaling", scaling, ", ".join(SCALINGS), near)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBatch:
    """The batch of a device, which weak scaling holds fixed.

    ``samples`` of a step on ``devices``, the middle of the curve, where strong and weak scaling
    are the same question.
    """

    samples: int
    devices: int

    @classmethod
    def of(cls, inputs: Inputs, counts: Sequence[int], seq_len: int) -> DeviceBatch:
        """That of a question's batch at the middle of its numbers of devices."""
        samples = inputs.global_batch
        if samples is None:
            samples = max(1, (inputs.global_batch_tokens or 0) // seq_len)
        return cls(samples=samples, devices=counts[len(counts) // 2])

    def on(self, devices: int) -> int:
        """Samples of a step on so many devices, rounded; 0 if less than one."""
        return round(self.samples * devices / self.devices)

    def note(self) -> Assumption:
        """The assumption of what weak scaling holds fixed."""
        why = (
            f"weak scaling: the batch of a step on {self.devices} devices, the middle of the "
            "curve; as many samples a device elsewhere"
        )
        return Assumption(path="workload.global_batch", value=self.samples, why=why)

    def inputs(self, inputs: Inputs, devices: int) -> Inputs:
        """The question with the batch of so many devices."""
        return replace(inputs, global_batch=self.on(devices), global_batch_tokens=None)
