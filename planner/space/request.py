"""A request to the planner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.model_spec import ModelSpec
from ...spec.workload.workload import Workload
from ..technique import KnownTechniques
from ..techniques import SHIPPED
from .objective import Objective, StepTime
from .pins import Pin


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Model, cluster, workload and stack, with limits of the space.

    ``objective``: to minimize. ``single_fill``: only plans without gradient accumulation, filling
    their pipeline once. ``token_rules``: those of ``layer_splits`` on tokens, for axes without
    pins. ``shards_pinned``: a pinned level other than zero0 has several ranks to shard over.
    ``nested_degrees``: states may shard over link levels, nested; False leaves levels alone.
    ``executable``: only plans of the bundled executor. ``values`` narrows axes to lists of values
    (tests and frameworks); None leaves an axis whole. ``techniques``: those allowed; ``program``:
    values of the whole program, which all of its plans have.
    """

    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    stack: StackSpec
    pins: tuple[Pin, ...] = ()
    objective: Objective = field(default_factory=StepTime)
    single_fill: bool = False
    token_rules: bool = True
    shards_pinned: bool = False
    executable: bool = False
    nested_degrees: bool = False
    values: dict[str, tuple[Any, ...]] | None = None
    techniques: KnownTechniques = SHIPPED
    program: dict[str, Any] = field(default_factory=dict)
