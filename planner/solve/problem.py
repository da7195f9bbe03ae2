"""A resolved planning problem: model, cluster, workload, stack and objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...costmodel.pricing.machine import Machine
from ...spec.choices import Objective
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.model_spec import ModelSpec
from ...spec.plan.rental_prices import RentalPrices
from ...spec.report.report import Assumption
from ...spec.workload.workload import Workload
from ..technique import KnownTechniques, ProgramPlace
from ..techniques import SHIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveChoice:
    """Objective, and for largest sizes their grain (else 0)."""

    objective: Objective = "throughput"
    grain: int = 0


THROUGHPUT = ObjectiveChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Resolved problem, with the assumptions behind it.

    For a largest size, the one of ``workload`` is the first tried. ``expansion`` describes the
    whole cluster in words. ``prices`` are None if unknown. ``techniques``: those allowed;
    ``program``: values of the whole program, which are chosen before layers are searched.
    """

    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    stack: StackSpec
    measured: Measured | None
    assumptions: tuple[Assumption, ...]
    expansion: str
    machine: Machine = field(compare=False)
    objective_choice: ObjectiveChoice = THROUGHPUT
    prices: RentalPrices | None = None
    techniques: KnownTechniques = SHIPPED
    program: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_single_search(self) -> bool:
        """True for one device group and fixed sizes: one search answers."""
        return len(self.cluster.groups) == 1 and not self.objective_choice.grain

    @property
    def place(self) -> ProgramPlace:
        """What values of the whole program may depend on."""
        return ProgramPlace(self.model, self.workload, self.cluster, self.stack)

    def sized(self, global_batch: int | None = None, seq_len: int | None = None) -> Problem:
        """The problem with another batch or sequence length."""
        workload = replace(
            self.workload,
            global_batch=global_batch or self.workload.global_batch,
            seq_len=seq_len or self.workload.seq_len,
        )
        return replace(self, workload=workload)

    def on_cluster(self, cluster: ClusterSpec) -> Problem:
        """Problem on another cluster, or part of its own, same rates."""
        return replace(self, cluster=cluster, machine=replace(self.machine, cluster=cluster))
