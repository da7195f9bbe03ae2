"""Request bodies with a file's text: imports and diagnoses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ....spec.choices import AttentionImpl, Overlap
from .requests import (
    STRICT,
    ClusterBody,
    DriveRoom,
    HostMemory,
    Memory,
    ModelBody,
    Name,
    Positive,
    Risk,
    StackName,
    StrategyBody,
    WorkloadBody,
)

FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_. +-]{0,99}$"
FrameworkName = Annotated[
    Name | None, Field(description="Of the configuration; left out: found by its keys.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A file's text, and its name, whose suffix tells its kind.

    No other file is opened: what it names in a folder or by a path is refused.
    """

    __pydantic_config__ = STRICT

    name: Annotated[str, Field(pattern=FILE_NAME, description="Such as train.toml or run.log.")]
    text: Annotated[str, Field(min_length=1, max_length=2**20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBody:
    """A framework's configuration; the other keys say what it leaves out."""

    __pydantic_config__ = STRICT

    file: TextFile
    framework: FrameworkName = None
    cluster: ClusterBody | None = None
    model: ModelBody | None = None
    workload: WorkloadBody | None = None
    strategy: StrategyBody | None = None
    stack: StackName | None = None
    attention: AttentionImpl | None = None
    overlap: Overlap | None = None
    calibration: Name | None = None
    memory_gib: Memory | None = None
    host_gib: HostMemory | None = None
    nvme_gib: DriveRoom | None = None
    oom_risk: Risk | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisBody(ImportBody):
    """A run's log, or a configuration or plan with a measured figure."""

    __pydantic_config__ = STRICT

    config: Annotated[
        TextFile | None, Field(description="Configuration or plan of a log that prints none.")
    ] = None
    measured_step_s: Annotated[
        Positive | None, Field(description="Seconds of a measured step, in place of a log's.")
    ] = None
    tokens_per_s: Annotated[
        Positive | None, Field(description="Measured tokens a second of all devices, likewise.")
    ] = None
    trace: Annotated[
        dict[str, Any] | None,
        Field(description="Trace of one rank by torch.profiler, its JSON content."),
    ] = None


IMPORT_ADAPTER = TypeAdapter(ImportBody)
DIAGNOSIS_ADAPTER = TypeAdapter(DiagnosisBody)
