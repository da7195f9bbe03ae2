"""A Llama-like model on the device of the report: planned, predicted, run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from gpu.machine_facts import cluster_of
from gpu.stage import Setting

from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.lowering.model_flops import model_flops_per_sample
from shardwright.costmodel.memory.library_workspace import workspace_bytes
from shardwright.costmodel.pricing.machine import Machine
from shardwright.datasets.catalogue.device import CPU
from shardwright.executor.groups.rank_layout import plan_device
from shardwright.executor.launch.pool import TRAIN_JOB, PoolOptions, WorkerPool
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.codec import from_json
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.report import MemoryRow

SLOW_START = PoolOptions(collective_timeout_s=300.0, silent_after_s=120.0)
"""The first step compiles kernels, during which a rank may say nothing."""
PROFILE = "profile.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCase:
    """A model and the batch of a step."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    seq_len: int
    global_batch: int

    def document(self) -> dict[str, Any]:
        """The model as a person types it."""
        return {
            "layers": self.layers,
            "hidden": self.hidden,
            "ffn": self.ffn,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "vocab": self.vocab,
            "tie_embeddings": True,
        }

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.seq_len * self.global_batch


def problem_of(
    case: ModelCase,
    setting: Setting,
    profile: MachineProfile | None = None,
    dtype: str | None = None,
) -> Problem:
    """The question of a case on this device, with a measured profile.

    Args:
        case: model and batch.
        setting: of the report.
        profile: what prices it, if anything does.
        dtype: of parameters; usually bf16 on a GPU and fp32 on cores.

    Raises:
        ValueError: the catalogue has no such device.
    """
    inputs = Inputs(
        model=case.document(),
        cluster=cluster_of(setting.facts),
        global_batch=case.global_batch,
        seq_len=case.seq_len,
        dtype=dtype or ("fp32" if setting.device.type == "cpu" else "bf16"),
        calibration="none",
    )
    problem = resolve(inputs)
    if profile is None:
        return problem
    return replace(problem, measured=profile, machine=Machine(problem.cluster, profile))


def plan_of(
    problem: Problem, micro_batch: int, recompute: str = "none", compiled: str = "none"
) -> Plan:
    """The plan of one device, with so many samples at once."""
    flags = UniformStrategy(
        micro_batch=micro_batch, recompute=recompute, techniques={"compile": compiled}
    )
    return uniform_plan(problem, flags)[0]


def top_pick(problem: Problem) -> Plan:
    """The planner's plan."""
    return solve(problem, SolveOptions(executable=True)).plan


def predicted(plan: Plan, problem: Problem) -> dict[str, float]:
    """Predicted seconds of a step, and peak bytes of torch's allocator."""
    prediction = simulate_plan(plan, problem.stack, problem.measured, ()).report.prediction
    peak = max(row.allocated_bytes + _libraries_bytes(row, problem) for row in prediction.memory)
    return {"step_time_s": prediction.step_time_s, "peak_bytes": peak}


def _libraries_bytes(row: MemoryRow, problem: Problem) -> int:
    """Workspaces of cuBLAS, which torch takes from its measured allocator.

    They are a part of ``by["workspace"]``; the rest of that, room that operations need for a
    moment, is among ``allocated_bytes`` already. On cores only tensors are counted.
    """
    name = problem.cluster.group(row.device_group).device
    return 0 if name == CPU else workspace_bytes(problem.stack, name)


def measured_profile(setting: Setting) -> MachineProfile:
    """The profile of the stage ``profile``.

    Raises:
        FileNotFoundError: it was not run.
    """
    path = setting.out / PROFILE
    if "profile" not in setting.known("profile") or not path.exists():
        raise FileNotFoundError("no profile of this device: run the stage profile first")
    return from_json(MachineProfile, path.read_text(encoding="utf-8"), str(path))


def efficiency(case: ModelCase, problem: Problem, step_time_s: float) -> dict[str, Any]:
    """Tokens a second, and MFU in both counts of a causal mask.

    MFU = model FLOPs of a step / seconds / the device's dense peak in the catalogue. ``mfu``
    counts every score, as the product does; ``mfu_causal`` only those that the mask leaves.
    """
    dtype = problem.workload.dtype.param
    peak = problem.machine.device.peak_flops_per_s.get(dtype)
    flops = model_flops_per_sample(problem.model, problem.workload) * case.global_batch
    width = case.heads * case.head_dim
    # Scores and mix, two products of 2 s² w each way and twice that back; half is masked.
    masked = 3 * case.layers * 4 * case.seq_len**2 * width // 2 * case.global_batch
    figures: dict[str, Any] = {"flops": flops, "tokens_per_s": case.tokens / step_time_s}
    for name, count in (("mfu", flops), ("mfu_causal", flops - masked)):
        figures[name] = None if peak is None else count / step_time_s / peak
    return figures


class Runner:
    """Runs plans on ranks that stay between runs.

    Args:
        setting: of the report.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._pool: WorkerPool | None = None

    def run(self, plan: Plan, steps: int, **settings: Any) -> dict[str, Any]:
        """Median seconds of a step after the first two, peak bytes, losses.

        Args:
            plan: of one device.
            steps: how many are measured.
            settings: more of the executor's ``TrainSettings``.

        Returns:
            ``peak_bytes`` is None where compiled code of cores hides it.
        """
        payload = {"plan": plan.to_document(), "steps": steps, "random_tokens": True, **settings}
        if self._pool is None:
            self._pool = WorkerPool(1, plan_device(plan), SLOW_START)
        try:
            result = self._pool.run(TRAIN_JOB, payload, timeout_s=self._limit_s())[0]
        except BaseException:
            self.close()
            raise
        measured = result["measured"]
        times = result["step_times_s"]
        return {
            "step_time_s": measured["step_time_s"],
            "times_s": times,
            "peak_bytes": max(measured.get("allocated_bytes", ()), default=None),
            "losses": [measured["losses"][0], measured["losses"][-1]],
        }

    def _limit_s(self) -> float | None:
        left_s = self._setting.left_s()
        return None if left_s == float("inf") else left_s

    def close(self) -> None:
        """End the ranks; the next run starts others."""
        if self._pool is not None:
            self._pool.kill()
            self._pool = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """A document for a job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
