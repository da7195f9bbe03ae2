"""Exports read by the frameworks' own parsers, each from packages of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from checks.exportable_plans import random_plans
from harness.paths import BENCHMARKS
from harness.processes import ran, succeeded
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, unmeasured
from harness.work import Work

from shardwright.api.frameworks.export_plan import export_plan
from shardwright.api.frameworks.exportable import exportable
from shardwright.api.frameworks.shipped import WRITTEN, framework_named
from shardwright.spec.strategy import Sharding

PACKAGES = {
    "torchtitan": ("torchtitan==0.2.2", "tyro", "docstring-parser", "shtab", "typeguard"),
    "deepspeed": ("deepspeed", "hjson", "ninja", "py-cpuinfo", "msgpack", "pydantic",
                  "pydantic-core", "annotated-types", "typing-inspection", "tqdm", "einops"),
    "accelerate": ("accelerate",),
}  # fmt: skip
"""What parsers import beside torch; 0.2 is torchtitan's last release that reads TOML."""
WITHOUT = {
    "megatron": "its package on the index has no parser of arguments",
    "megatron-bridge": "it imports Transformer Engine, which needs CUDA",
    "galvatron": "its release on the index reads another form than its repository",
    "verl": "its configuration is merged by Hydra with the trainer's own, from its repository",
}
PLANS = 40


def run(work: Work) -> Evidence:
    """Random plans inside each framework's limits, written and parsed."""
    count, seed = work.sized(PLANS, 3), work.first_seed(10_000)
    rows = []
    for name in WRITTEN:
        if name in WITHOUT:
            rows.append(unmeasured(name, WITHOUT[name]))
            continue
        with tempfile.TemporaryDirectory(prefix="framework-") as folder:
            rows.append(_parsed(name, Path(folder), count, seed))
    return Evidence(rows=rows)


def _parsed(name: str, folder: Path, count: int, seed: int) -> Row:
    packages, plans = folder / "packages", folder / "plans"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    done = ran([*command, str(packages), *PACKAGES[name]])
    if done.code:
        last_line = (done.err.strip().splitlines() or ["nothing said"])[-1]
        return unmeasured(name, f"its packages could not be installed ({last_line})")
    _write(name, plans, count, seed)
    peer = BENCHMARKS / "peers" / "framework_parsers.py"
    out = succeeded([sys.executable, str(peer), name, str(packages), str(plans)]).out
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    refused = found["refused"]
    accepted = found["plans"] - len(refused)
    return judged(
        f"{name} {found['version']}: exports that its own parser reads as they were meant",
        f"{accepted} of {found['plans']}" + (f" ({refused[0]})" if refused else ""),
        "all", not refused, accepted=accepted,
    )  # fmt: skip


def _write(name: str, folder: Path, count: int, seed: int) -> None:
    framework = framework_named(name, "--to")
    for number, (plan, stack) in enumerate(random_plans(framework, count, seed)):
        place = folder / f"{number:02d}"
        place.mkdir(parents=True)
        for file, text in export_plan(plan, stack, None, framework).files.items():
            (place / file).write_text(text, encoding="utf-8")
        said = exportable(plan, stack)
        about = {
            "tp": said.strategy.tp,
            "cp": said.strategy.cp,
            "pp": said.pp,
            "dp": said.dp,
            "zero": _zero_stage(said.strategy.shard),
            "devices": plan.cluster.device_count,
            "global_batch": plan.workload.global_batch,
        }
        (place / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _zero_stage(shard: Sharding) -> int:
    return sum(ranks > 1 for ranks in (shard.optimizer, shard.gradients, shard.parameters))


ITEM = Item(
    name="framework_parsers",
    shows="Exports are read by the frameworks' own parsers, degrees and all.",
    target="all of 40 random plans for each framework whose parser runs without a GPU.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/peers"),
)
