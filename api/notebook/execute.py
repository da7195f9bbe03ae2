"""Runs from Python: a plan on this machine, a module of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..planning.report import simulate_plan
from ..problem.arguments import arguments_named
from ..problem.report_pricing import PlanDocument, run_pricing
from .plan_handle import PlanHandle
from .plan_source import PlanLike, document_of
from .run_result import RunResult
from .simulate import handle_of


def parallelize(module: Any, plan: PlanLike, *, layers: str | None = None) -> Any:
    """Parallelize a torch module in place, for your own training loop.

    Every rank calls it, in an existing process group (torchrun); see
    ``shardwright.executor.user_module.parallelize``.

    Args:
        module: the whole module, equal on every rank.
        plan: a handle, a Plan or the path of a plan file.
        layers: dotted name of the list of repeated layers; None to find it.

    Raises:
        InputError: a plan that the module cannot follow.
    """
    from ...executor.user_module.parallelize import parallelize as parallelized

    return parallelized(module, handle_of(plan, {}).plan, layers=layers)


@arguments_named
def execute(
    plan: PlanLike,
    steps: int = 20,
    *,
    verify: bool = False,
    data: str | None = None,
    tokenizer: str | None = None,
    init_from: str | Path | None = None,
    save_hf: str | Path | None = None,
    out_dir: str | Path | None = None,
    routing_trace: str | Path | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
    resume: str | Path | None = None,
    new_stage: bool = False,
) -> RunResult:
    """Run a plan on this machine; return the contract's ``execute`` document.

    Args:
        plan: a handle, a Plan or the path of a plan file.
        steps: optimizer step to reach.
        verify: compare losses and gradients with a single process.
        data: text file or folder, or token numbers; Python's own sources if None.
        tokenizer: a ``tokenizer.json`` for the data.
        init_from: checkpoint of any kind to start from, a folder or a URL.
        save_hf: folder of transformers to write.
        out_dir: folder that keeps the losses where there is no checkpoint.
        routing_trace: CSV file to write each expert's rows in, for ``expert_load``.
        checkpoint: folder to save checkpoints in.
        every: steps between them.
        resume: folder of checkpoints to resume from.
        new_stage: with weights and moments of ``resume`` alone, steps counted from 0.

    Raises:
        InputError: the plan cannot run on this machine.
        RunError: the run failed.
    """
    handle = plan if isinstance(plan, PlanHandle) else _handle(document_of(plan))
    return handle.execute(
        steps,
        verify=verify,
        data=data,
        tokenizer=tokenizer,
        init_from=init_from,
        save_hf=save_hf,
        out_dir=out_dir,
        routing_trace=routing_trace,
        checkpoint=checkpoint,
        every=every,
        resume=resume,
        new_stage=new_stage,
    )


def _handle(given: PlanDocument) -> PlanHandle:
    stack, measured, notes = run_pricing(given)
    report = simulate_plan(given.plan, stack, measured, notes).report
    return PlanHandle(report=report, stack=stack, measured=measured)
