"""Run a plan on this machine, and compare with the prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...costmodel.explain.breakdown import utilization
from ...costmodel.explain.compare import compare_terms, relative_error
from ...costmodel.lowering.model_flops import flops_convention
from ...costmodel.memory.feasibility import DEFAULT_RISK
from ...executor.checkpoint.foreign.look import is_ours, is_transformers, look
from ...executor.checkpoint.settings import CheckpointSettings
from ...executor.checkpoint.storage.paths import CheckpointPath
from ...executor.huggingface.config import check_config, config_for
from ...executor.huggingface.target import check_adapters, check_folder, check_target
from ...executor.launch.pool import run_plan
from ...profiler.store.profiles import keep_profile, newest_profile
from ...profiler.sweep import QUICK_BUDGET_S, measure
from ...spec.choices import KERNEL_POLICIES, KernelPolicy
from ...spec.cluster.machine_profile import MachineProfile
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.codec import to_document
from ...spec.errors import InputError, one_of
from ...spec.inputs.routing_trace import require_experts
from ...spec.plan.plan import Plan
from ...spec.report.report import Assumption, Prediction
from ...spec.workload.learning_rate import LearningRate
from ..planning.checkpoint_price import with_checkpoint
from ..planning.report import Simulated, simulate_plan
from .addresses import require_addresses
from .sent_bytes import sent_beside_priced

DEFAULT_STEPS = 10
EventCallback = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteOptions:
    """Options of a run: steps, seed, text, rate, checks, weights.

    ``checkpoint`` locates checkpoints; ``init_from`` is a checkpoint of any kind to start
    from, ``save_hf`` a transformers folder to write. ``routing_trace``: CSV of the rows of
    each expert. ``out_dir`` is the folder of ``losses.csv``, that of the checkpoints
    if None.
    """

    steps: int = DEFAULT_STEPS
    seed: int = 0
    data: str | None = None
    tokenizer: str | None = None
    learning_rate: LearningRate = field(default_factory=LearningRate)
    kernels: KernelPolicy = "auto"
    verify: bool = False
    trace_file: Path | None = None
    init_from: CheckpointPath | None = None
    save_hf: Path | None = None
    out_dir: Path | None = None
    routing_trace: Path | None = None
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)

    def __post_init__(self) -> None:
        one_of("--kernels", self.kernels, KERNEL_POLICIES)
        _ = self.checkpoint.source  # refused before ranks start


def ensure_profile(devices: int, on_event: EventCallback) -> MachineProfile:
    """Return this machine's newest profile; measure where there is none.

    Measuring takes some 20 s. One that cannot be stored serves this process.

    Args:
        devices: ranks at work at once.
        on_event: called with ``{"phase": "profile", …}`` before measuring, and with
            ``{"phase": "unsaved", "why": …}`` where it cannot be stored.
    """
    profile = newest_profile(devices)
    if profile is None:
        on_event({"phase": "profile", "budget_s": QUICK_BUDGET_S})
        profile = measure(QUICK_BUDGET_S, devices, on_event)
        if why := keep_profile(profile):
            on_event({"phase": "unsaved", "why": why})
    return profile


def execute_plan(
    plan: Plan,
    stack: StackSpec,
    measured: Measured | None,
    options: ExecuteOptions,
    on_event: EventCallback,
    assumptions: tuple[Assumption, ...] = (),
) -> dict[str, Any]:
    """Run a plan; return the contract's ``execute`` document, with the comparison.

    One that a signal stopped has ``stopped`` instead: step, steps, signal, and the folder of its
    last checkpoint. ``stack``, ``measured`` and ``assumptions`` are those of the prediction.

    Raises:
        RunError: the run failed.
        InputError: the plan is priced for a stack other than the executor.
    """
    if stack.name != "shardwright":
        allowed = "shardwright: that is what runs here"
        raise InputError("--stack", stack.name, allowed, "shardwright")
    require_folders(plan, options)
    simulated = simulate_plan(plan, stack, measured, assumptions, DEFAULT_RISK)
    if options.checkpoint.folder is not None:
        simulated = with_checkpoint(simulated)
    payload = {
        "steps": options.steps,
        "seed": options.seed,
        "data": options.data,
        "tokenizer": options.tokenizer,
        "adamw": {"learning_rate": to_document(options.learning_rate)},
        "verify": options.verify,
        "attention": stack.attention,
        "kernels": options.kernels,
        "trace": True,
        "trace_file": _text(options.trace_file),
        "init_from": _text(options.init_from),
        "save_hf": _text(options.save_hf),
        "out_dir": _text(options.out_dir),
        "routing_trace": _text(options.routing_trace),
        "checkpoint": asdict(options.checkpoint),
    }

    def relay(rank: int, event: dict[str, Any]) -> None:
        if rank == 0:
            on_event(event)

    require_addresses(plan, payload, on_event)
    result = run_plan(plan, payload, relay)
    return _document(plan, simulated, result)


def require_folders(plan: Plan, options: ExecuteOptions) -> None:
    """Check folders of weights and losses before ranks start.

    Raises:
        InputError: the first unusable one.
        NotBuiltError: a model without a transformers class.
    """
    model, seq_len = plan.model, plan.workload.seq_len
    init_from, save_hf, out_dir = options.init_from, options.save_hf, options.out_dir
    if options.routing_trace is not None:
        require_experts(model, str(options.routing_trace))
    if out_dir is not None:
        check_folder(out_dir, "--out-dir")
    if init_from is not None and is_transformers(init_from):
        check_config(init_from, model, seq_len, "--init-from")
    elif init_from is not None and not is_ours(init_from):
        look(init_from, "--init-from")
    if save_hf is not None:
        check_target(save_hf, "--save-hf")
        check_adapters(plan, init_from, save_hf)
        if init_from is None or not is_transformers(init_from):
            config_for(model, seq_len)


def _text(path: CheckpointPath | None) -> str | None:
    return None if path is None else str(path)


def _document(plan: Plan, simulated: Simulated, result: dict[str, Any]) -> dict[str, Any]:
    measured = dict(result["measured"])
    if by_stage := measured.pop("allocated_bytes", None):  # compiled code of cores hides it
        measured["allocated_bytes"] = max(by_stage)
        measured["allocated_bytes_by_stage"] = by_stage
    if "reserved_bytes" in measured:
        measured["reserved_bytes_by_stage"] = measured["reserved_bytes"]
        measured["reserved_bytes"] = max(measured["reserved_bytes"])
    if by_stage := measured.pop("host_bytes", None):
        measured["host_bytes"] = max(by_stage)
        measured["host_bytes_by_stage"] = by_stage
    sent = measured.pop("sent_bytes", [])
    measured["rss_growth_bytes"] = result["rss_growth_bytes"]
    measured |= _rates(plan, simulated, measured["step_time_s"])
    document: dict[str, Any] = {
        "plan_hash": plan.hash,
        "measured": measured,
        "predicted": simulated.report.prediction.to_document(),
        "kernels": result["kernels"],
    }
    if sent:
        document["sent_bytes"] = sent_beside_priced(plan, simulated.simulator.lowering.stack, sent)
    if "traced" in result:
        document["comparison"] = _comparison(plan, simulated, result)
    names = ("checkpoint", "verify", "stopped", "losses_file", "techniques", "recipe_hash")
    for name in names:
        if name in result:
            document[name] = result[name]
    return document


def _rates(plan: Plan, simulated: Simulated, step_s: float) -> dict[str, Any]:
    """Return FLOPs a second and their share of the peak (MFU).

    FLOPs are counted as predicted: ``step_time_s · peak_flops_per_s · mfu = flops``, with the peak
    of all devices in stages.
    """
    used = utilization(plan, simulated.simulation, simulated.simulator)
    devices = sum(stage.device_count for stage in plan.program.stages)
    return {
        "flops_per_s_per_device": used.flops / step_s / devices,
        "mfu": used.mfu(step_s),
        "mfu_causal": used.mfu_causal(step_s),
        "hfu": used.hfu(step_s),
        "flops": used.flops,
        "executed_flops": used.executed_flops,
        "peak_flops_per_s": used.peak_flops_per_s,
        "flops_convention": flops_convention(plan.workload),
    }


def _comparison(plan: Plan, simulated: Simulated, result: dict[str, Any]) -> dict[str, Any]:
    """Compare prediction and run: relative errors, terms of a traced step."""
    prediction = simulated.report.prediction
    measured = result["measured"]
    stage = simulated.simulation.critical.stage
    rank = sum(s.device_count for s in plan.program.stages[:stage])
    traced = result["traced"]
    terms = compare_terms(
        prediction.breakdown_s, traced["breakdown_by_rank_s"][rank], measured["step_time_s"]
    )
    return {
        "step_time_error": relative_error(prediction.step_time_s, measured["step_time_s"]),
        "allocated_error": _byte_errors(prediction, measured.get("allocated_bytes")),
        "stage": stage,
        "traced_step_time_s": traced["step_time_s"],
        "terms": [asdict(term) for term in terms],
    }


def _byte_errors(prediction: Prediction, measured: list[int] | None) -> list[float]:
    """Relative errors of each stage's bytes, if measured."""
    if measured is None:
        return []
    predicted = [row.allocated_bytes for row in prediction.memory if row.tier == "hbm"]
    return [relative_error(b, a) for b, a in zip(predicted, measured, strict=True)]
