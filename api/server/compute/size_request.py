"""Request body of a training's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from ....spec.limits import MAX_TRAINING_TOKENS
from ...size.scaling import Scaling
from .requests import (
    STRICT,
    ClusterBody,
    Deadline,
    DriveRoom,
    HostMemory,
    Memory,
    ModelBody,
    Name,
    Positive,
    PricesBody,
    StackName,
    WorkloadBody,
)

SizeTokens = Annotated[
    Annotated[int, Field(ge=1, le=MAX_TRAINING_TOKENS)]
    | Annotated[float, Field(ge=1, le=MAX_TRAINING_TOKENS)]
    | Annotated[str, Field(min_length=1, max_length=40)],
    Field(description="Of the training, such as 2T; with a cluster those of an epoch."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBody:
    """A training on a number of devices that is asked for, or fine-tunings on a cluster."""

    __pydantic_config__ = STRICT

    model: ModelBody
    tokens: SizeTokens
    device: Annotated[
        Name | None, Field(description="A device, or DEVICE@FABRIC; instead of a cluster.")
    ] = None
    cluster: ClusterBody | None = None
    within: Annotated[
        Annotated[str, Field(min_length=1, max_length=20)] | Positive | None,
        Field(description="Time that the training may take, such as 30d, 720h, 4w; or days."),
    ] = None
    budget: Annotated[
        Positive | None, Field(description="What it may cost, in the prices' currency.")
    ] = None
    prices: PricesBody | None = None
    scaling: Annotated[
        Scaling | None,
        Field(description="strong holds the batch of a step fixed, weak that of a device; strong."),
    ] = None
    epochs: Annotated[
        float | None, Field(gt=0, le=1e6, description="With a cluster: of the tokens; 1.")
    ] = None
    workload: WorkloadBody | None = None
    stack: StackName | None = None
    calibration: Name | None = None
    memory_gib: Memory | None = None
    host_gib: HostMemory | None = None
    nvme_gib: DriveRoom | None = None
    deadline_s: Annotated[
        Deadline | None,
        Field(description="Seconds of all full searches; 180, with a cluster none are made."),
    ] = None


SIZE_ADAPTER = TypeAdapter(SizeBody)
