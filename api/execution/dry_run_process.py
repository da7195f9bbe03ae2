"""Dry run of every stage class in a process with torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

from ...spec.codec import canonical_json
from ...spec.errors import RunError
from ...spec.plan.plan import Plan

MODULE = "shardwright.executor.train.dry_run"
NEEDS_TORCH = "collectives and bytes of a step need torch: pip install 'shardwright[run]'"
QUIET_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def dry_run_stages(plan: Plan) -> list[dict[str, Any]] | None:
    """Return bytes and collectives of a plan's stages; None without torch.

    Raises:
        RunError: the rehearsal failed.
    """
    return stage_documents(plan, MODULE)


def stage_documents(plan: Plan, module: str) -> list[dict[str, Any]] | None:
    """Return what a module of the executor says of a plan's stages; None without torch.

    Raises:
        RunError: the rehearsal failed.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    stages: list[dict[str, Any]] = json.loads(
        output_of(module, canonical_json(plan), "the rehearsal of a step failed")
    )
    return stages


def output_of(module: str, text: str, failed: str) -> str:
    """Return what a module of the executor writes, given ``text``, in a process with torch.

    Raises:
        RunError: it ended with an error; ``failed`` and its last line.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", module],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **QUIET_ENVIRONMENT},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        raise RunError(f"{failed}: {last}")
    return done.stdout


__all__ = ["NEEDS_TORCH", "dry_run_stages", "output_of", "stage_documents"]
