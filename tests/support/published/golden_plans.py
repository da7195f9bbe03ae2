"""Plans of released schemas, and what each release said they cost.

``tests/golden/plans/SCHEMA/NAME.json`` are plans as a release wrote them; they are never changed.
``tests/golden/figures/VERSION.json`` has the figures that a release gave for all of them. As a
program, ``python tests/support/published/golden_plans.py`` writes the plans that are not there yet
and the
figures of this version; what is there is never overwritten. Figures of a version that was not
released yet may be deleted first, where prices were changed on purpose.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shardwright as sw
from shardwright.spec.codec import dump_pretty
from shardwright.spec.plan.plan import SCHEMA_VERSION, Plan, load_plan

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
PLANS, FIGURES = GOLDEN / "plans", GOLDEN / "figures"
BATCH: dict[str, Any] = {"global_batch": 64, "seq_len": 4096}


def _dense() -> Plan:
    return sw.simulate(
        "llama-3-8b", "2x8xH100-80GB", **BATCH, tp=4, pp=2, vpp=2, sp="megatron", shard="zero1",
        recompute="selective",
    ).plan  # fmt: skip


def _searched() -> Plan:
    """Stages and layers that differ: the search's own, under tight memory."""
    pins = ["pp=2", "schedule=1f1b", "tp=2", "dp=2", "cp=1"]
    return sw.plan("llama-3-8b", "1x8xA100-40GB", global_batch=32, seq_len=8192, pins=pins).plan


def _experts() -> Plan:
    return sw.simulate(
        "mixtral-8x7b", "2x8xH100-80GB", **BATCH, ep=8, shard="zero1", micro_batch=1,
        recompute="full",
    ).plan  # fmt: skip


def _mixed() -> Plan:
    return sw.plan("gpt2", "2xA100-80GB+2xH100-80GB", global_batch=32, seq_len=1024).plan


def _offloaded() -> Plan:
    return sw.simulate(
        "llama-3-8b", "8xH100-80GB", **BATCH, shard="zero3", cpu_offload="all", host_gib=200.0,
        recompute="full",
    ).plan  # fmt: skip


def _compiled() -> Plan:
    return sw.simulate("gpt2", "8xH100-80GB", global_batch=64, seq_len=1024, compile="default").plan


def _adapters() -> Plan:
    return sw.simulate(
        "llama-2-7b", "8xA100-80GB", **BATCH, trainable="lora:rank=16,targets=query,value",
        pp=4, schedule="dualpipe", dtype="bf16",
    ).plan  # fmt: skip


def _rings() -> Plan:
    return sw.simulate("llama-3-8b", "8xH100-80GB", global_batch=4, seq_len=65536, cp=4,
                       shard="zero2", recompute="full", optimizer="adamw8bit").plan  # fmt: skip


MAKERS: dict[str, Callable[[], Plan]] = {
    "adapters-dualpipe": _adapters,
    "compiled": _compiled,
    "dense-interleaved": _dense,
    "experts": _experts,
    "mixed-cluster": _mixed,
    "offloaded": _offloaded,
    "rings": _rings,
    "searched-layer-by-layer": _searched,
}


def plans() -> dict[str, Plan]:
    """The plans that there are, by schema and name, loaded as anybody's file is."""
    paths = sorted(PLANS.glob("*/*.json"))
    return {
        f"{path.parent.name}/{path.stem}": load_plan(path.read_text("utf-8"), str(path))
        for path in paths
    }


def figures(plan: Plan) -> dict[str, Any]:
    """What a plan costs under the shipped constants."""
    found = sw.simulate(plan, calibration="none").prediction
    return {
        "plan_hash": plan.hash,
        "feasible": found.feasible,
        "step_time_s": found.step_time_s,
        "mfu": found.mfu,
        "breakdown_s": {name: s for name, s in found.breakdown_s.items() if s},
        "memory": [
            {
                "stage": row.stage,
                "device_group": row.device_group,
                "tier": row.tier,
                "allocated_bytes": row.allocated_bytes,
                "reserved_bytes": row.reserved_bytes,
            }
            for row in found.memory
        ],
    }


def released() -> dict[str, dict[str, Any]]:
    """The figures of every release, by version, oldest first."""
    found = sorted(FIGURES.glob("*.json"), key=lambda p: [int(n) for n in p.stem.split(".")])
    return {path.stem: json.loads(path.read_text("utf-8")) for path in found}


def write_new() -> list[Path]:
    """Write what is missing; nothing that is there is touched."""
    written = []
    folder = PLANS / f"schema-{SCHEMA_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, make in MAKERS.items():
        path = folder / f"{name}.json"
        if not path.exists():
            path.write_text(dump_pretty(make().to_document()), "utf-8")
            written.append(path)
    path = FIGURES / f"{sw.__version__}.json"
    if not path.exists():
        document = {name: figures(plan) for name, plan in plans().items()}
        path.write_text(dump_pretty(document), "utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    for each in write_new():
        sys.stdout.write(f"{each}\n")
