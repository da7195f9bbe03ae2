"""A published run as a question to ``plan simulate``, with assumptions.

A blank is filled by one documented default and listed; what has no meaning here is refused with the
reason. Where the blocks do not divide into the stages, the question is a plan instead of flags:
layers, both ends counted, are cut as evenly as possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...datasets.published.names import names
from ...datasets.published.readings import read_device, read_dtype, read_recompute
from ...datasets.published.runs import PublishedRun
from ...planner.solve.problem import Problem
from ...spec.cluster.calibration import Calibration
from ...spec.plan.plan import Plan
from ...spec.report.report import Assumption, Report
from ..planning.report import simulate_plan
from ..planning.uniform_chunks import even_layers
from ..planning.uniform_plan import UniformStrategy, strategy_flags, uniform_plan
from ..problem.resolve import Inputs, resolve
from .published_model import TEST_WHY, RunDraft, memory_formats, model_of_run, with_memory_formats
from .published_stack import choose_stack

REQUIRED_COLUMNS = ("layers", "hidden", "heads", "seq", "micro_batch", "tp", "gpus")
MEASURED_COLUMNS = ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu")
LORA = "lora:rank=16,alpha=32,targets=query,key,value,output"
LORA_WHY = "rank and targets are not printed; those of MLPerf Training's Llama 2 70B"

RACK_WHY = (
    "placement is not printed; schedulers place such jobs in equal segments (Slurm's block "
    "topology), so that groups of a power of two stay in a rack"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationArguments:
    """Flags of ``plan simulate`` by name.

    With ``even_cuts`` the plan has layers, not blocks, in equal runs: a plan can say so, no flag
    can. Nor can one express ``of_memory``: the gradients' format, whether parameters are kept in
    fp8 alone, and whether the loss is one kernel.
    """

    arguments: Mapping[str, Any]
    even_cuts: bool
    assumed: tuple[Assumption, ...]
    of_memory: Mapping[str, Any] = field(default_factory=dict)


def qualifies(run: PublishedRun) -> bool:
    """Return True if a row has the sizes of a question.

    Layers, hidden, heads, sequence, micro-batch, tp and a measured figure.
    """
    sizes = (getattr(run, name) for name in REQUIRED_COLUMNS if name != "gpus")
    return None not in sizes and any(getattr(run, name) is not None for name in MEASURED_COLUMNS)


def simulation_arguments(run: PublishedRun) -> SimulationArguments:
    """Build the arguments of ``plan simulate`` for a published run.

    Raises:
        InputError: a missing size, or a name without meaning here.
    """
    draft = RunDraft(run)
    for name in REQUIRED_COLUMNS:
        value = getattr(run, name)
        if not value:
            raise draft.refuse(name, "nothing" if value is None else value, "a row with this field")
    arguments = draft.arguments
    arguments["model"] = model_of_run(draft)
    arguments["cluster"] = _cluster(draft)
    even = _layout(draft)
    _formats(draft)
    _optimizer(draft)
    choose_stack(draft)
    _batch(draft)
    if "LoRA" in run.model:
        arguments["trainable"] = draft.assume("trainable", LORA, LORA_WHY)
    arguments["calibration"] = "none"
    states = memory_formats(draft)
    return SimulationArguments(
        arguments=arguments, even_cuts=even, assumed=tuple(draft.assumed), of_memory=states
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A question as a plan, with its problem and assumptions.

    ``unprinted`` are the fields that the source does not print.
    """

    plan: Plan
    problem: Problem
    assumed: tuple[Assumption, ...]
    unprinted: tuple[str, ...] = ()

    def simulate_run(self, calibration: Calibration | None = None) -> Report:
        """Simulate the plan."""
        return simulate_plan(self.plan, self.problem.stack, calibration, self.assumed).report


def simulate_run(question: SimulationArguments, calibration: Calibration | None = None) -> Report:
    """Simulate a question: flags, or a plan with even boundaries.

    Raises:
        InputError: the plan breaks a rule, or its stack cannot express it.
        NotBuiltError: a value that this version does not serve.
    """
    return planned_run(question).simulate_run(calibration)


def planned_run(question: SimulationArguments) -> PlannedRun:
    """The plan that a question's flags describe.

    Raises:
        InputError: the plan breaks a rule, or its stack cannot express it.
        NotBuiltError: a value that this version does not serve.
    """
    names = strategy_flags()
    arguments = {k: v for k, v in question.arguments.items() if k not in names}
    flags = {k: v for k, v in question.arguments.items() if k in names}
    problem = with_memory_formats(resolve(Inputs(**arguments)), question.of_memory)
    cut = even_layers if question.even_cuts else None
    plan, notes = uniform_plan(problem, UniformStrategy.from_flags(flags), cut)
    every = (*question.assumed, *problem.assumptions, *notes)
    unprinted = tuple(note.path for note in question.assumed)
    return PlannedRun(plan=plan, problem=problem, assumed=every, unprinted=unprinted)


def _cluster(draft: RunDraft) -> str | dict[str, Any]:
    run, tables = draft.run, names()
    entry = tables["hardware"].get(run.hardware) or _read_hardware(draft)
    if "why" in entry:
        draft.assume("cluster", entry["device"], entry["why"])
    gpus = run.gpus or 0
    per_node = min(run.gpus_per_node or 8, gpus)
    if gpus % per_node:
        raise draft.refuse("gpus", gpus, f"whole nodes of {per_node}")
    nodes, in_rack = gpus // per_node, entry.get("rack_nodes")
    if in_rack and nodes > in_rack and nodes % in_rack == 0:
        rack = draft.assume("cluster.nodes_per_rack", in_rack, RACK_WHY)
        keys = {"nodes": nodes, "devices_per_node": per_node, "device": entry["device"]}
        return {**keys, "nodes_per_rack": rack}
    text = f"{nodes}x{per_node}x{entry['device']}"
    link = tables["interconnect"].get(run.interconnect)
    if link is None or nodes == 1:
        return text
    if "why" in link:
        draft.assume("cluster", link["fabric"], link["why"])
    return f"{text}@{link['fabric']}"


def _read_hardware(draft: RunDraft) -> Mapping[str, Any]:
    name = draft.run.hardware
    device = read_device(name)
    if device is None:
        raise draft.refuse("hardware", name, "a device of the catalogue")
    return {"device": device, "why": f"read from the name {name}"}


def _layout(draft: RunDraft) -> bool:
    """Degrees and levels; True if layers, not blocks, are cut evenly."""
    run, arguments = draft.run, draft.arguments
    for name in ("tp", "pp", "vpp", "cp", "ep"):
        arguments[name] = getattr(run, name) or 1
    if run.dp is not None:
        arguments["dp"] = run.dp
    blocks, chunks = run.layers or 0, int(arguments["pp"] * arguments["vpp"])
    even = blocks % chunks != 0
    if even:
        why = f"{blocks} blocks do not divide; layers, both ends counted, are cut evenly"
        draft.assume("cuts", chunks, why)
    arguments["shard"] = draft.usual("shard", "zero0") if run.zero is None else f"zero{run.zero}"
    if arguments["shard"] == "zero1" and (copies := draft.test.get("optimizer_copies")):
        ranks = (run.gpus or 0) // (arguments["tp"] * arguments["pp"])
        arguments["shard"] = draft.assume("shard", f"1/1/{max(1, ranks // copies)}", TEST_WHY)
    if run.sp is not None:
        arguments["sp"] = "megatron" if run.sp and arguments["tp"] > 1 else "none"
    elif arguments["tp"] > 1 and "sp" in draft.source:
        arguments["sp"] = draft.usual("sp", "none")
    if run.experts and draft.source.get("etp") == "tp":
        named = re.search(r"etp(\d+)", run.model)
        degree = int(named.group(1)) if named else arguments["tp"]
        arguments["etp"] = draft.assume("etp", degree, "that of the model's name, else tp")
    return even


def _formats(draft: RunDraft) -> None:
    run, arguments, tables = draft.run, draft.arguments, names()
    if run.dtype:
        arguments["dtype"] = tables["dtype"].get(run.dtype) or _read(draft, "dtype", read_dtype)
    else:
        arguments["dtype"] = draft.usual("dtype", "bf16")
    if arguments["dtype"] is None:
        raise draft.refuse("dtype", run.dtype, "a number format that is known here")
    if not run.recompute:
        arguments["recompute"] = draft.usual("recompute", "none")
    elif run.recompute in (meant := draft.source.get("recomputes", {})):
        value, why = meant[run.recompute]
        arguments["recompute"] = draft.assume("recompute", value, why)
    elif run.recompute in tables["recompute"]:
        arguments["recompute"] = tables["recompute"][run.recompute]
    else:
        arguments["recompute"] = _read(draft, "recompute", read_recompute)
    if arguments["recompute"] is None:
        allowed = "none, selective, selective-ops or full, not modules"
        raise draft.refuse("recompute", run.recompute, allowed)


def _optimizer(draft: RunDraft) -> None:
    name = draft.run.optimizer.casefold()
    if "8bit" in re.sub(r"[\s-]", "", name):
        draft.arguments["optimizer"] = draft.assume("optimizer", "adamw8bit", f"read from {name}")
    elif name and "adam" not in name:
        draft.arguments["optimizer"] = name.split()[0]


def _read(draft: RunDraft, name: str, reading: Callable[[str], str | None]) -> str | None:
    text = getattr(draft.run, name)
    value = reading(text)
    return None if value is None else draft.assume(name, value, f"read from {text}")


def _batch(draft: RunDraft) -> None:
    run, arguments = draft.run, draft.arguments
    split = arguments["tp"] * arguments["pp"] * arguments["cp"]
    arguments["seq_len"], arguments["micro_batch"] = run.seq, run.micro_batch
    if run.global_batch is not None:
        arguments["global_batch"] = run.global_batch
        return
    steps = re.search(r"grad_accum=(\d+)", run.notes)
    accumulation = int(steps.group(1)) if steps else 1
    batch = (run.micro_batch or 0) * (run.dp or (run.gpus or 0) // split) * accumulation
    why = "micro-batch x dp x accumulation" + ("" if steps else "; accumulation taken as 1")
    arguments["global_batch"] = draft.assume("global_batch", batch, why)
