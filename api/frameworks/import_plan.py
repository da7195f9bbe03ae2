"""A framework's file as a plan, with what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ...datasets.models.load import presets
from ...planner.solve.problem import Problem
from ...spec.errors import InputError
from ...spec.model.model_spec import ModelSpec
from ...spec.plan.plan import LayerPlan, Plan
from ...spec.report.report import Assumption, Report
from ...spec.strategy import LayerStrategy
from ..planning.uniform_chunks import ChunkSplitter, layer_chunks
from ..planning.uniform_plan import UniformStrategy, strategy_flags, uniform_plan
from ..problem.model_and_cluster import cluster_of, model_of
from ..problem.resolve import Inputs, resolve
from .block_strategies import split_by_block
from .framework import Framework
from .framework_file import FrameworkFile, read_framework_file
from .settings import Settings
from .shipped import framework_of

NO_STRATEGY: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPlan:
    """A plan read from a framework's file.

    ``problem`` prices it; ``ignored`` are keys that change nothing known here.
    """

    framework: Framework
    plan: Plan
    problem: Problem
    assumptions: tuple[Assumption, ...]
    ignored: tuple[str, ...]

    def to_document(self, report: Report) -> dict[str, Any]:
        """JSON-ready form with the plan's report, a stable contract (docs/frameworks.md)."""
        said = {"framework": self.framework.name, "ignored": list(self.ignored)}
        return {**report.to_document(), **said}


def import_plan(
    path: str,
    framework: str | None = None,
    given: Inputs | None = None,
    strategy: Mapping[str, Any] = NO_STRATEGY,
) -> ImportedPlan:
    """Read a plan from a framework's file.

    Args:
        path: the file.
        framework: its kind; None: found by looking.
        given: what the file leaves out, always a cluster.
        strategy: strategy flags that it leaves out.

    Raises:
        InputError: no readable file of a framework, a key without a counterpart, a missing value,
            or one given twice.
    """
    file = read_framework_file(path)
    return imported(file, framework_of(file, framework), given or Inputs(), strategy)


def imported(
    file: FrameworkFile, framework: Framework, given: Inputs, strategy: Mapping[str, Any]
) -> ImportedPlan:
    """The plan of a file of a known framework; the arguments are those of ``import_plan``.

    Raises:
        InputError: as ``import_plan``.
    """
    if given.cluster is None:
        allowed = f"the machines that {file.path} is for"
        raise InputError("--cluster", "nothing", allowed, "--cluster 8xH100-80GB")
    devices = cluster_of(given.cluster).cluster.device_count
    settings, keys = framework.settings(file, devices)
    inputs, notes = _inputs(file, framework, settings, given)
    problem = resolve(inputs)
    flags = _strategy(file, settings, strategy)
    plan, plan_notes = uniform_plan(problem, flags, _cut(settings, problem, flags.pp or 1))
    assumed = (*notes, *keys.assumed, *problem.assumptions, *_unsaid(plan_notes, flags))
    return ImportedPlan(
        framework=framework,
        plan=plan,
        problem=problem,
        assumptions=tuple(assumed),
        ignored=keys.unread,
    )


def _inputs(
    file: FrameworkFile, framework: Framework, settings: Settings, given: Inputs
) -> tuple[Inputs, list[Assumption]]:
    """The problem's flags: those of the file, and what was given beside it."""
    notes: list[Assumption] = []
    values: dict[str, Any] = dict(settings.inputs)
    for name, value in values.items():
        typed = getattr(given, name)
        if typed is not None and typed != value:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(flag, typed, f"nothing beside {file.path}, which says it", value)
    if given.global_batch_tokens is not None and "global_batch" in values:
        raise InputError(
            "--global-batch-tokens",
            given.global_batch_tokens,
            f"nothing beside {file.path}, which says it",
        )
    values["stack"] = given.stack or settings.stack
    if given.stack is None:
        why = f"that of {framework.title}, whose file it is"
        notes.append(Assumption(path="framework", value=settings.stack, why=why))
    values["model"] = _model(file, framework, settings, given, notes)
    return replace(given, **values), notes


def _model(
    file: FrameworkFile,
    framework: Framework,
    settings: Settings,
    given: Inputs,
    notes: list[Assumption],
) -> Any:
    if given.model is not None:
        if settings.model is not None:
            why = f"given; {file.path} has one too, which is not read"
            notes.append(Assumption(path="model", value=model_of(given.model)[0].name, why=why))
        return given.model
    if settings.model is None:
        allowed = f"a model: {file.path} names none that is known here"
        raise InputError("--model", "nothing", allowed, "llama-3-8b")
    if isinstance(settings.model, str):
        return settings.model
    model, model_notes = model_of(settings.model, file.path)
    notes.extend(model_notes)
    return _known(model)


def _known(model: ModelSpec) -> ModelSpec:
    """The preset of the same layers, else the model itself."""
    for preset in presets().values():
        if replace(preset.model, name=model.name) == model:
            return preset.model
    return model


def _strategy(file: FrameworkFile, settings: Settings, given: Mapping[str, Any]) -> UniformStrategy:
    values = dict(settings.strategy)
    for name, typed in given.items():
        if typed is None:
            continue
        if values.get(name, typed) != typed:
            flag = f"--{name.replace('_', '-')}"
            allowed = f"nothing beside {file.path}, which says it"
            raise InputError(flag, typed, allowed, values[name])
        values[name] = typed
    unknown = set(values) - set(strategy_flags())
    if unknown:
        raise RuntimeError(f"a framework set {sorted(unknown)}, which no flag is")
    return UniformStrategy.from_flags(values)


def _cut(settings: Settings, problem: Problem, stages: int) -> ChunkSplitter | None:
    sizes = settings.chunk_layers
    if settings.blocks is not None:
        return split_by_block(settings.blocks, problem, stages)
    if sizes is None:
        return None

    def split(
        model: ModelSpec, chunks: int, strategy: LayerStrategy
    ) -> list[tuple[LayerPlan, ...]]:
        return layer_chunks(model, sizes or _even(len(model.layers()), chunks), chunks, strategy)

    return split


def _even(layers: int, chunks: int) -> tuple[int, ...]:
    """Sizes within one of each other, the larger first."""
    size, larger = divmod(layers, chunks)
    return tuple(size + (n < larger) for n in range(chunks))


def _unsaid(notes: tuple[Assumption, ...], flags: UniformStrategy) -> list[Assumption]:
    """Notes on flags that the file did not decide."""
    names = {item.name for item in fields(flags) if getattr(flags, item.name) is not None}
    names |= {"dp", "ep", "etp"}  # the rest of the devices, and a model without experts
    return [note for note in notes if note.path.lstrip("-").replace("-", "_") not in names]
