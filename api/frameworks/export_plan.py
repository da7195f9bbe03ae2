"""A plan as a framework's files, with what they cannot say and what that costs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...datasets.catalogue.stack import stack as stack_named
from ...datasets.clusters.resize import resize
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError, ShardwrightError
from ...spec.model.layers import EmbeddingLayer
from ...spec.model.model_spec import ModelSpec
from ...spec.plan.plan import Plan, Program
from ...spec.workload.number_formats import STATE_ROLES
from ...spec.workload.workload import DtypeRecord
from ..planning.report import simulate_plan
from ..problem.resolve import Inputs
from .exportable import ExportablePlan, exportable
from .framework import Framework
from .import_plan import import_plan
from .nearest import Change, nearest_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPlan:
    """Files of a framework.

    ``plan`` is what they say, ``lost`` what the given plan decides otherwise; both steps are priced
    as the given plan was. ``unsaid`` are words that the files leave to scripts and code.
    """

    framework: Framework
    files: Mapping[str, str]
    launch: str
    plan: Plan
    lost: tuple[Change, ...]
    given_step_s: float
    step_s: float
    fits: bool
    unsaid: tuple[str, ...]

    @property
    def cost_s(self) -> float:
        """Seconds of a step that the losses cost; below 0 where they gain."""
        return self.step_s - self.given_step_s

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "framework": self.framework.name,
            "files": dict(self.files),
            "launch": self.launch,
            "plan": self.plan.to_document(),
            "plan_hash": self.plan.hash,
            "feasible": self.fits,
            "lost": [
                {"what": item.what, "given": item.given, "instead": item.instead}
                for item in self.lost
            ],
            "cost_s": self.cost_s,
            "step_time_s": {"given": self.given_step_s, "exported": self.step_s},
            "unsaid": list(self.unsaid),
        }


def export_plan(
    plan: Plan, stack: StackSpec, measured: Measured | None, framework: Framework
) -> ExportedPlan:
    """Write a plan as a framework's files.

    Args:
        plan: any plan of one device group.
        stack: that priced it.
        measured: that priced it.
        framework: whose files are written.

    Raises:
        InputError: a plan or a model that the framework has no words for.
    """
    if framework.write is None or framework.launch is None:
        raise InputError("--to", framework.name, "a framework whose files are written")
    given = exportable(plan, stack)
    prices: dict[str, tuple[bool, float]] = {}

    def price(made: Plan) -> tuple[bool, float]:
        if made.hash not in prices:
            prediction = simulate_plan(made, stack, measured, ()).report.prediction
            prices[made.hash] = (not prediction.feasible, prediction.step_time_s)
        return prices[made.hash]

    whole = _own_stack(framework, stack)
    own = framework.narrow(whole)
    found = framework.layerwise(given, whole, price) if framework.layerwise else None
    made, lost = found or nearest_plan(given, own, price)
    said = ExportablePlan(plan=made, stack=own)
    files = framework.write(said)
    again, reread = _reread(said, framework, files)
    overflows, step_s = price(again)
    return ExportedPlan(
        framework=framework,
        files=files,
        launch=framework.launch(said),
        plan=again,
        lost=(*lost, *reread, *_idle(said)),
        given_step_s=price(plan)[1],
        step_s=step_s,
        fits=not overflows,
        unsaid=(*(() if framework.says_model(plan.model) else ("model",)), *framework.outside),
    )


def _own_stack(framework: Framework, priced: StackSpec) -> StackSpec:
    """The stack that priced the plan if it is the framework's, else that, attention alike."""
    if priced.name.partition(":")[0] in (framework.stack, *framework.other_stacks):
        return priced
    return replace(stack_named(framework.stack), attention=priced.attention)


def _idle(said: ExportablePlan) -> tuple[Change, ...]:
    count = said.plan.cluster.device_count
    if said.devices == count:
        return ()
    return (Change(what="devices", given=f"{said.devices} of {count}", instead="start as many"),)


def _reread(
    said: ExportablePlan, framework: Framework, files: Mapping[str, str]
) -> tuple[Plan, tuple[Change, ...]]:
    """The plan of the written files, and what it decides otherwise."""
    outside = set(framework.outside)
    work, strategy = said.workload, dict[str, Any]()
    values: dict[str, Any] = {"cluster": _cluster_at_work(said)}
    for name in outside & {"global_batch", "seq_len", "optimizer"}:
        values[name] = getattr(work, name)
    if "dtype" in outside:
        values |= _formats(work.dtype)
    if "micro_batch" in outside:
        strategy["micro_batch"] = said.micro_batch
    if "recompute" in outside:
        strategy["recompute"] = said.strategy.recompute
    if not framework.says_model(said.model):
        values["model"] = said.model
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        try:
            path = str(Path(folder) / framework.main_file)
            again = import_plan(path, framework.name, Inputs(**values), strategy).plan
        except ShardwrightError as error:
            text = str(error).replace(f"{folder}/", "")
            return said.plan, (Change(what="read again", given="the plan", instead=text),)
    return _with_names(said.plan, again), differences(said.plan, again)


def _formats(dtype: DtypeRecord) -> dict[str, str]:
    """Flags of a record's formats."""
    states = {flag: getattr(dtype, roles[0]) for flag, roles in STATE_ROLES.items()}
    return {"dtype": dtype.shorthand, **states}


def _cluster_at_work(said: ExportablePlan) -> ClusterSpec:
    """The cluster without devices that the plan leaves idle, where whole nodes are left."""
    cluster = said.plan.cluster
    if said.devices == cluster.device_count:
        return cluster
    name = cluster.groups[0].name
    return resize(cluster, name, said.nodes, said.devices_per_node, "devices").cluster


def _with_names(plan: Plan, again: Plan) -> Plan:
    """A plan read again, on the cluster of the first one, under its name of the model."""
    model = replace(again.model, name=plan.model.name)
    if with_positions(model, plan) == with_positions(plan.model, plan):
        model = plan.model
    programs = plan.programs if same_program(plan, again) else again.programs
    return replace(again, models={"main": model}, cluster=plan.cluster, programs=programs)


def differences(plan: Plan, again: Plan) -> tuple[Change, ...]:
    """Decisions in which two plans differ, in words; model names count for nothing."""
    found = []
    model, again_model = plan.model, replace(again.model, name=plan.model.name)
    if with_positions(again_model, plan) != with_positions(model, plan):
        instead = "a model that differs in what is not said"
        found.append(Change(what="model", given=model.name, instead=instead))
    work, other = plan.workload, again.workload
    for name in ("global_batch", "seq_len", "optimizer", "trainable", "task"):
        a, b = getattr(work, name), getattr(other, name)
        if a != b:
            found.append(Change(what=name, given=str(a), instead=str(b)))
    if work.dtype != other.dtype:
        given, instead = (x.dtype.text for x in (work, other))
        found.append(Change(what="dtype", given=given, instead=instead))
    if not same_program(plan, again):
        found.append(Change(what="program", given="the plan", instead=_program_text(plan, again)))
    return tuple(found)


def same_program(plan: Plan, again: Plan) -> bool:
    """True if two programs decide alike, however runs of equal layers are written."""

    def decisions(program: Program) -> tuple[object, ...]:
        stages = [(stage.devices, stage.mesh_order) for stage in program.stages]
        chunks = [
            (stage, chunk, sum(part.layers[2] - part.layers[1] + 1 for part in parts))
            for stage, chunk, parts in program.chunks()
        ]
        return (stages, chunks, program.layer_strategies(), program.schedule, program.techniques)

    return decisions(plan.program) == decisions(again.program)


def with_positions(model: ModelSpec, plan: Plan) -> ModelSpec:
    """A model whose learned positions, where open, are as many as the sequence has tokens."""
    runs = model.towers[0].layers
    first = runs[0].layer
    if not isinstance(first, EmbeddingLayer) or first.positions is not None:
        return model
    filled = replace(runs[0], layer=replace(first, positions=plan.workload.seq_len))
    tower = replace(model.towers[0], layers=(filled, *runs[1:]))
    return replace(model, towers=(tower, *model.towers[1:]))


def _program_text(plan: Plan, again: Plan) -> str:
    from ..views.report_text import shape_text

    return shape_text(again)
