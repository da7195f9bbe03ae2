"""Plan: every decision of a run and nothing else; hashed and canonical.

A plan holds programs (one for plain training). A program is a model and a workload placed on
pipeline stages; a stage lists its devices and, for each virtual stage, runs of layers with
one strategy each. Ranks in no stage are idle. Predictions and rates are not in a plan: a new
cost model changes reports, never plans.

Batch geometry: ``schedule.micro_batch`` is the samples of one micro-batch on each replica of the
*first* layer, so the whole micro-batch holds ``micro_batch × dp(first layer)`` samples and a
layer with another data-parallel degree takes its own equal share of them. Device groups of one
stage may take unequal shares (``spec.parallel.batch_partition``): ``micro_batch`` is then the
mean over the first layer's replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Annotated, Any, Literal

from pydantic import Field

from .. import codec
from ..cluster.cluster_spec import ClusterSpec
from ..errors import InputError
from ..model.experts import experts_of
from ..model.model_spec import Layer, ModelSpec
from ..parallel.batch_partition import same_batch_partition
from ..schedules.action_text import order_of
from ..schedules.stage_order import SPLIT_KINDS, Pass, ScheduleKind, chunk_location, chunk_position
from ..strategy import LayerStrategy, Techniques
from ..technique import Values
from ..techniques import TECHNIQUES
from ..workload.workload import Workload

SCHEMA_VERSION = 1
RESERVED_KEYS = ("phases", "transitions", "policies", "data", "tables")
PositiveInt = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
LayerRef = tuple[str, Index, Index]
"""``(tower, first, last)``: 0-based and inclusive, embedding and head counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDevices:
    """``count`` consecutive devices of one group.

    ``batch_share`` is the fraction of every micro-batch's samples that they take, in equal parts;
    None: as many a device as the stage's other devices.
    """

    device_group: str
    first_rank: Index
    count: PositiveInt
    batch_share: Annotated[float, Field(gt=0, le=1)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """One strategy for a run of layers.

    ``by_device_group`` overrides it on some devices.

    The device groups of a stage hold its layers together, so an override may change recomputation
    and techniques, but neither splits nor sharding.
    """

    layers: LayerRef
    strategy: LayerStrategy = field(default_factory=LayerStrategy)
    by_device_group: dict[str, LayerStrategy] = field(default_factory=dict)

    def strategy_on(self, device_group: str | None) -> LayerStrategy:
        """The strategy on the devices of a group (None: without overrides)."""
        if device_group is None:
            return self.strategy
        return self.by_device_group.get(device_group, self.strategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage.

    Devices, order of its mesh axes (outer first), virtual stages.
    """

    devices: tuple[StageDevices, ...]
    mesh_order: tuple[Literal["dp", "cp", "tp"], ...] = ("dp", "cp", "tp")
    virtual_stages: tuple[tuple[LayerPlan, ...], ...]

    @property
    def device_count(self) -> int:
        """Devices of the stage."""
        return sum(group.count for group in self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Pipeline schedule; ``actions`` spells out each stage's passes (None: the kind's own).

    One line a stage, see ``spec.schedules.action_text``; ``kind`` then only places the chunks.
    """

    kind: ScheduleKind = "1f1b"
    micro_batch: PositiveInt
    microbatches: PositiveInt
    actions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A model trained on a workload by some stages.

    ``after`` names programs to wait for; ``techniques`` holds values of the whole program.
    """

    name: str = "main"
    model: str = "main"
    workload: str = "main"
    role: Literal["train"] = "train"
    after: tuple[str, ...] = ()
    stages: tuple[Stage, ...]
    schedule: Schedule
    techniques: Techniques = field(default_factory=dict)

    @property
    def chunks_per_stage(self) -> int:
        """Virtual stages on each stage (1 unless interleaved or in a V)."""
        return len(self.stages[0].virtual_stages)

    @property
    def splits_backward(self) -> bool:
        """True if some backward passes are split."""
        if self.schedule.actions is not None:
            return any("W" in line for line in self.schedule.actions)
        return self.schedule.kind in SPLIT_KINDS

    def passes(self, stage: int) -> tuple[Pass, ...]:
        """The passes of a stage in the order it runs them."""
        schedule, stages = self.schedule, len(self.stages)
        count, chunks = schedule.microbatches, self.chunks_per_stage
        return order_of(schedule.kind, stage, stages, chunks, count, schedule.actions)

    def chunks(self) -> Iterator[tuple[int, int, tuple[LayerPlan, ...]]]:
        """``(stage, virtual stage, layer plans)`` in the order of the data flow."""
        stages = len(self.stages)
        for position in range(stages * self.chunks_per_stage):
            index, virtual = chunk_location(self.schedule.kind, position, stages)
            yield index, virtual, self.stages[index].virtual_stages[virtual]

    def layer_strategies(self) -> list[LayerStrategy]:
        """Strategy of every layer, in the order of the data flow."""
        return [
            part.strategy
            for _, _, parts in self.chunks()
            for part in parts
            for _ in range(part.layers[1], part.layers[2] + 1)
        ]

    def same_entry_partition(self, stage: int, chunk: int) -> bool:
        """True if a chunk and its sender partition the batch equally."""
        stages = self.stages
        position = chunk_position(self.schedule.kind, stage, chunk, len(stages))
        if position == 0:
            return True
        before, _ = chunk_location(self.schedule.kind, position - 1, len(stages))
        return before == stage or same_batch_partition(stages[before], stages[stage])

    @property
    def first_strategy(self) -> LayerStrategy:
        """Strategy of the first layer, on which the micro-batch is defined."""
        return self.stages[0].virtual_stages[0][0].strategy

    @property
    def micro_batch_samples(self) -> int:
        """Samples of one micro-batch over all data-parallel replicas."""
        stage = self.stages[0]
        return self.schedule.micro_batch * self.first_strategy.data_parallel(stage.device_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule of a plan: its path and a message."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete plan, as a document."""

    schema_version: Literal[1] = 1
    models: dict[str, ModelSpec]
    cluster: ClusterSpec
    workloads: dict[str, Workload]
    programs: tuple[Program, ...]
    techniques: dict[str, Any] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        """The only program of a plan that has one."""
        if len(self.programs) != 1:
            raise InputError("programs", f"{len(self.programs)} programs", "exactly one here")
        return self.programs[0]

    @property
    def model(self) -> ModelSpec:
        """The model of the only program."""
        return self.models[self.program.model]

    @property
    def workload(self) -> Workload:
        """The workload of the only program."""
        return self.workloads[self.program.workload]

    @property
    def hash(self) -> str:
        """Identity of the decisions: sha256 of the canonical JSON."""
        return codec.content_hash(self)

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form without defaults, always with the schema version."""
        return {"schema_version": self.schema_version, **codec.to_document(self)}

    def layer_strategies(self) -> tuple[LayerStrategy, ...]:
        """The strategy of every layer of the only program, by layer number."""
        strategies: dict[int, LayerStrategy] = {}
        for _, _, plans in self.program.chunks():
            for part in plans:
                strategies |= dict.fromkeys(self._layer_numbers(part), part.strategy)
        return tuple(strategies[i] for i in sorted(strategies))

    def with_microbatches(self, count: int) -> Plan:
        """The plan with so many micro-batches of its size, and a batch of as many."""
        program = self.program
        schedule = replace(program.schedule, microbatches=count)
        workload = replace(self.workload, global_batch=count * program.micro_batch_samples)
        return replace(
            self,
            programs=(replace(program, schedule=schedule),),
            workloads={**self.workloads, program.workload: workload},
        )

    def stage_strategies(
        self, stage: int, every: tuple[LayerStrategy, ...] | None = None
    ) -> list[LayerStrategy]:
        """Strategies along a stage's chunks, each after its input's layout.

        That is the layout of the layer before the chunk, or where the sending stage partitions the
        batch
        differently, that of the chunk's first layer.

        Args:
            stage: its number.
            every: :meth:`layer_strategies`, to compute them once for many stages.
        """
        every = self.layer_strategies() if every is None else every
        strategies: list[LayerStrategy] = []
        for chunk, parts in enumerate(self.program.stages[stage].virtual_stages):
            before = max(self._layer_numbers(parts[0]).start - 1, 0)
            same_partition = self.program.same_entry_partition(stage, chunk)
            strategies.append(every[before] if same_partition else parts[0].strategy)
            for part in parts:
                strategies += repeat(part.strategy, len(self._layer_numbers(part)))
        return strategies

    def expert_strategies(self, stage: int) -> list[LayerStrategy]:
        """Strategies of the layers of a stage that have experts."""
        if not any(experts_of(layer) for layer in self.model.kinds()):
            return []
        return [
            strategy
            for parts in self.program.stages[stage].virtual_stages
            for _, layer, strategy in self.chunk_layers(parts)
            if experts_of(layer) is not None
        ]

    def _tower_offset(self, name: str) -> int:
        offset = 0
        for tower in self.model.towers:
            if tower.name == name:
                return offset
            offset += tower.layer_count
        raise InputError("layers[0]", name, "a tower of the model")

    def _layer_numbers(self, part: LayerPlan) -> range:
        tower, first, last = part.layers
        offset = self._tower_offset(tower)
        return range(offset + first, offset + last + 1)

    def chunk_layers(
        self, plans: tuple[LayerPlan, ...], device_group: str | None = None
    ) -> tuple[tuple[int, Layer, LayerStrategy], ...]:
        """``(layer number, layer, strategy)`` for each layer of a chunk, in order.

        Args:
            plans: the chunk's layers.
            device_group: the group whose overrides apply, if it has any.
        """
        layers = self.model.layers()
        layers_with_strategy = []
        for part in plans:
            strategy = part.strategy_on(device_group)
            layers_with_strategy += [
                (index, layers[index], strategy) for index in self._layer_numbers(part)
            ]
        return tuple(layers_with_strategy)

    def check(self, techniques: Values = TECHNIQUES) -> list[Violation]:
        """Every broken rule, not only the first; empty for a legal plan.

        Args:
            techniques: the known ones.
        """
        from ..rules.plan_rules import plan_violations

        return plan_violations(self, techniques)


def load_plan(text: str | bytes, where: str, techniques: Values = TECHNIQUES) -> Plan:
    """A legal plan from JSON text.

    A Plan, or any document with a ``plan`` key.

    Args:
        text: the JSON text.
        where: its name in an error, such as its path.
        techniques: the known ones.

    Raises:
        InputError: not a plan, of a newer schema, or breaking a rule (the first is named and
            the others are counted).
    """
    document = codec.parse_json(text, where)
    if isinstance(document, dict) and "plan" in document:
        document = document["plan"]
    if not isinstance(document, dict):
        raise InputError(where, type(document).__name__, "a plan: a JSON object")
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        allowed = f"schema_version {SCHEMA_VERSION}; a newer plan needs a newer shardwright"
        raise InputError(f"{where}: schema_version", version, allowed)
    for key in RESERVED_KEYS:
        if key in document:
            raise InputError(f"{where}: {key}", "a reserved key", "keys of this schema version")
    plan = plan_of(document, where, techniques)
    violations = plan.check(techniques)
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        first = violations[0]
        raise InputError(f"{where}: {first.path}", first.message + more, "a legal plan")
    return plan


def plan_of(document: Any, where: str, techniques: Values = TECHNIQUES) -> Plan:
    """A plan, legal or not, from its document.

    Raises:
        InputError: not a plan.
    """
    return codec.from_document(Plan, document, where, {"techniques": techniques})
