"""Request bodies as strict types, which are also their schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from ....spec.choices import OPTIMIZERS, SEQUENCE_PARALLELS, AttentionImpl, Overlap
from ....spec.cluster.calibration import NAME_PATTERN
from ....spec.limits import MAX_DEGREE, MAX_LAYERS, MAX_SAMPLES, MAX_SEQ_LEN, MAX_TRAINING_TOKENS
from ....spec.schedules.stage_order import ALL_KINDS
from ....spec.technique import Values
from ....spec.techniques import TECHNIQUES
from ....spec.workload.number_formats import SHORTHANDS
from ....spec.workload.workload import TASKS

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Count = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
Sequence = Annotated[int, Field(ge=1, le=MAX_SEQ_LEN)]
Degree = Annotated[int, Field(ge=1, le=MAX_DEGREE)]
LayerCount = Annotated[int, Field(ge=0, le=MAX_LAYERS)]
LayerCountsBody = Annotated[list[LayerCount], Field(min_length=1, max_length=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
StackName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=400,
        description="Training software: NAME or NAME:setting=value,… (`plan simulate --help`).",
    ),
]
Positive = Annotated[float, Field(gt=0, le=2.0**40)]
Memory = Annotated[
    float, Field(gt=0, le=2.0**40, description="Cap on a device's memory in GiB, its context too.")
]
HostMemory = Annotated[
    float, Field(gt=0, le=2.0**40, description="Host memory that a device may use, in GiB.")
]
DriveRoom = Annotated[
    float, Field(gt=0, le=2.0**40, description="Room on drives that a device may use, in GiB.")
]
Risk = Annotated[
    float, Field(gt=0, le=0.5, description="Accepted chance of too little memory; 0.05.")
]
PriceOrNone = Annotated[float, Field(ge=0, le=2.0**40)]
MAX_DEADLINE_S = 600.0
DEADLINE_S = 60.0
"""Of a job that names none."""
Deadline = Annotated[
    float,
    Field(gt=0, le=MAX_DEADLINE_S, description=f"Seconds to search; {DEADLINE_S:g} if left out."),
]
SweepDeadline = Annotated[
    float,
    Field(gt=0, le=86_400, description="Seconds for all rows; 60, or 3 a value, if left out."),
]
MAX_SWEEP_VALUES = 5000
OBJECTIVE_FIELD = Field(
    description="throughput, cost (with prices), largest-batch[:GRAIN] or largest-sequence[:GRAIN]."
)
PREFER_FIELD = Field(
    description="simple[:P%]: the simplest plan within P (1) per cent of the best; or best."
)
ModelBody = Annotated[
    Name | dict[str, Any],
    Field(description="A preset's name (GET /v1/models), typed keys, or a config.json's content."),
]
ClusterBody = Annotated[
    Name | dict[str, Any],
    Field(
        description="NODESxDEVICESxTYPE[@FABRIC], NxTYPE[@FABRIC], NxINSTANCE of a cloud, groups "
        "joined with +, 1x(4xA+4xB[@LINK]), local[:N], or typed keys."
    ),
]


ExpertLoadBody = Annotated[
    Annotated[str, Field(pattern=r"^(even|power:[0-9.eE+-]{1,40})$")] | dict[str, Any],
    Field(description="even, power:A, or the summary of a routing trace, as a plan holds it."),
]


def _words(words: Iterable[str]) -> str:
    return ", ".join(words) + "."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadBody:
    """Training task: batch, sequence, number format, optimizer."""

    __pydantic_config__ = STRICT

    global_batch: Annotated[Count | None, Field(description="Samples a step.")] = None
    global_batch_tokens: Annotated[
        Count | None, Field(description="Tokens a step, instead of samples.")
    ] = None
    seq_len: Annotated[Sequence | None, Field(description="Tokens of a sample.")] = None
    dtype: Annotated[Name | None, Field(description=_words(SHORTHANDS))] = None
    grad_dtype: Annotated[Name | None, Field(description="Of gradients: fp32 if left out.")] = None
    communication_dtype: Annotated[
        Name | None, Field(description="Of gradients' reductions: grad_dtype if left out.")
    ] = None
    master_dtype: Annotated[
        Name | None, Field(description="Of master weights; none for no separate ones.")
    ] = None
    moment_dtype: Annotated[
        Name | None, Field(description="Of the optimizer's moments: fp32 if left out.")
    ] = None
    optimizer: Annotated[Name | None, Field(description=_words(OPTIMIZERS))] = None
    trainable: Annotated[
        Name | None, Field(description="full, lora:rank=16,targets=query,value or frozen:TOWER,….")
    ] = None
    task: Annotated[Name | None, Field(description=_words(TASKS))] = None
    expert_load: ExpertLoadBody | None = None
    lengths: Annotated[
        dict[str, Any] | None,
        Field(description="Of the documents in a sequence: a histogram, as a plan holds it."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintsBody:
    """Constraints on a plan; ``pins`` as ``plan --pin`` takes them."""

    __pydantic_config__ = STRICT

    pins: Annotated[list[Name], Field(max_length=100)] | None = None
    memory_gib: Memory | None = None
    host_gib: HostMemory | None = None
    nvme_gib: DriveRoom | None = None
    oom_risk: Risk | None = None
    top: Annotated[int, Field(ge=0, le=100)] | None = None
    allow: Annotated[
        Name | None, Field(description="Techniques whose lossy values are tried, commas between.")
    ] = None
    executable: Annotated[
        bool | None, Field(description="Keep to what the bundled executor runs.")
    ] = None
    framework: Annotated[
        Name | None,
        Field(description="Keep to what a framework's files say, as plan --for does."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesBody:
    """Hourly prices of a device and a node, by device or group."""

    __pydantic_config__ = STRICT

    currency: Annotated[str, Field(min_length=1, max_length=16)]
    device_hour: Annotated[dict[Name, Positive], Field(min_length=1, max_length=100)]
    node_hour: Annotated[dict[Name, PriceOrNone], Field(max_length=100)] | None = None


TokensBody = Annotated[
    Annotated[int, Field(ge=1, le=MAX_TRAINING_TOKENS)]
    | Annotated[float, Field(ge=1, le=MAX_TRAINING_TOKENS)]
    | Annotated[str, Field(min_length=1, max_length=40)],
    Field(description="Tokens of a whole training, such as 2T: its time, and cost with prices."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBody:
    """A search: the best plan of a model on a cluster."""

    __pydantic_config__ = STRICT

    model: ModelBody
    cluster: ClusterBody
    workload: WorkloadBody
    objective: Annotated[Name | None, OBJECTIVE_FIELD] = None
    prices: PricesBody | None = None
    tokens: TokensBody | None = None
    prefer: Annotated[Name | None, PREFER_FIELD] = None
    stack: StackName | None = None
    calibration: Name | None = None
    constraints: ConstraintsBody | None = None
    deadline_s: Deadline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyFields:
    """One strategy for all layers, as ``plan simulate``'s flags."""

    __pydantic_config__ = STRICT

    tp: Annotated[Degree | None, Field(description="Tensor-parallel degree.")] = None
    pp: Annotated[Degree | None, Field(description="Pipeline stages.")] = None
    vpp: Annotated[Degree | None, Field(description="Virtual stages on each stage.")] = None
    cp: Annotated[Degree | None, Field(description="Context-parallel degree: ranks of a ring.")] = (
        None
    )
    ep: Annotated[Degree | None, Field(description="Expert-parallel degree.")] = None
    etp: Annotated[Degree | None, Field(description="Expert-tensor-parallel degree.")] = None
    dp: Annotated[Degree | None, Field(description="Data-parallel degree; left out: the rest.")] = (
        None
    )
    layers_per_stage: Annotated[
        Name | LayerCountsBody | None,
        Field(description="Blocks of each stage, such as 2,3,3; left out: equal parts."),
    ] = None
    first_stage_layers: Annotated[
        LayerCount | None,
        Field(description="Blocks of the first stage; the others share the rest."),
    ] = None
    last_stage_layers: Annotated[
        LayerCount | None, Field(description="Blocks of the last stage; likewise.")
    ] = None
    sp: Annotated[Name | None, Field(description=_words(SEQUENCE_PARALLELS))] = None
    shard: Annotated[
        Name | None, Field(description="zero0 to zero3, hsdp or hpz[:LEVEL|:DEGREE], or P/G/O.")
    ] = None
    schedule: Annotated[Name | None, Field(description=_words(ALL_KINDS))] = None
    micro_batch: Annotated[Degree | None, Field(description="Samples of a micro-batch.")] = None
    recompute: Annotated[
        Name | None, Field(description="none, selective, selective-ops, ops:save=NAME,… or full.")
    ] = None


def strategy_body(techniques: Values = TECHNIQUES) -> type[StrategyFields]:
    """Type of a body's strategy, with one field per technique."""
    words = [
        (
            technique.name,
            Annotated[Name | None, Field(description=technique.help)],
            field(default=None),
        )
        for technique in techniques
    ]
    text = {"__doc__": StrategyFields.__doc__, "__pydantic_config__": STRICT}
    return make_dataclass(
        "StrategyBody",
        words,
        bases=(StrategyFields,),
        namespace=text,
        frozen=True,
        slots=True,
        kw_only=True,
    )


if TYPE_CHECKING:
    StrategyBody = StrategyFields
else:
    StrategyBody = strategy_body()


Included = Literal["explain", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationBody:
    """A plan, or a model, cluster, workload and one strategy."""

    __pydantic_config__ = STRICT

    plan: dict[str, Any] | None = None
    model: ModelBody | None = None
    cluster: ClusterBody | None = None
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
    prices: PricesBody | None = None
    tokens: TokensBody | None = None
    include: Annotated[
        list[Included] | None,
        Field(max_length=2, description="What the answer holds too: explain, trace (Perfetto's)."),
    ] = None


Value = Annotated[str, Field(min_length=1, max_length=400)] | float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfBody:
    """A plan and its changes.

    Keys are those of ``plan what-if --help``; numbers are SI.
    """

    __pydantic_config__ = STRICT

    plan: dict[str, Any] | None = None
    plan_id: Name | None = None
    set: Annotated[dict[Name, Value], Field(max_length=30)] | None = None
    sweep: (
        Annotated[
            dict[Name, Annotated[list[Value], Field(min_length=1, max_length=MAX_SWEEP_VALUES)]],
            Field(min_length=1, max_length=1),
        ]
        | None
    ) = None
    add: ClusterBody | None = None
    scale: Literal["batch", "fixed"] | None = None
    stack: StackName | None = None
    attention: AttentionImpl | None = None
    overlap: Overlap | None = None
    calibration: Name | None = None
    oom_risk: Risk | None = None
    deadline_s: SweepDeadline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBody:
    """A plan to run on the service's machine.

    ``steps`` is the step to reach.
    """

    __pydantic_config__ = STRICT

    plan: dict[str, Any] | None = None
    plan_id: Name | None = None
    steps: Annotated[int, Field(ge=1, le=10_000)]
    deadline_s: SweepDeadline | None = None


Cell = Annotated[str, Field(max_length=200)] | int | float | None
MAX_ROWS, MAX_CELLS = 500, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileBody:
    """A table of measured runs, memory peaks or kernels.

    Its runs are of one device and one stack. Columns are those of ``plan calibrate --data``; values
    left out of a row are blank. Kernels are rows as ``plan profile`` has them: ``hardware``,
    ``op``, ``shape`` (512x1024x512), ``dtype``, ``flops``, ``traffic_bytes``, ``time_s``.
    """

    __pydantic_config__ = STRICT

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    rows: Annotated[
        list[Annotated[dict[Name, Cell], Field(max_length=MAX_CELLS)]],
        Field(min_length=1, max_length=MAX_ROWS),
    ]


PROFILE_ADAPTER = TypeAdapter(ProfileBody)
RUN_ADAPTER = TypeAdapter(RunBody)
RUN_S = 3600.0
"""The deadline of a run that names none."""
PLAN_ADAPTER = TypeAdapter(PlanBody)
SIMULATION_ADAPTER = TypeAdapter(SimulationBody)
WHAT_IF_ADAPTER = TypeAdapter(WhatIfBody)
