"""Random requests, priced once and again from the report alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import shardwright as sw
from shardwright.api.problem.stored_calibrations import save_calibration
from shardwright.api.server.compute.operations import run_operation
from shardwright.costmodel.pricing.version import PRICING_VERSION
from shardwright.datasets.catalogue.tables import read_table
from shardwright.spec.cluster.calibration import FACTOR_NAMES, Factors, unfitted
from shardwright.spec.errors import InputError

MODELS = ("gpt2", "llama-2-7b", "qwen2.5-7b", "mixtral-8x7b")
CLUSTERS = ("8xH100", "2x8xA100-80GB", "8xV100-32GB", "4xL40S", "8xA100-40GB")
FLAGS: dict[str, tuple[Any, ...]] = {
    "attention": (None, None, "flash", "unfused"),
    "overlap": (None, None, "none", "dp", "dp+tp", "all"),
    "oom_risk": (None, None, 0.01, 0.2),
    "shard": (None, "zero1", "zero3"),
    "recompute": (None, "full"),
}


def requests(count: int, seed: int) -> list[tuple[str, str, dict[str, Any]]]:
    """So many requests that can be priced: model, cluster and flags."""
    random, made = Random(seed), []
    stacks = [None, *read_table("stacks")]
    while len(made) < count:
        flags: dict[str, Any] = {name: random.choice(values) for name, values in FLAGS.items()}
        flags |= {"stack": random.choice(stacks), "global_batch": 32, "seq_len": 1024}
        flags |= {"tp": random.choice((1, 2)), "pp": random.choice((1, 2))}
        model, cluster = random.choice(MODELS), random.choice(CLUSTERS)
        try:
            report = sw.simulate(model, cluster, **flags).report
        except InputError:
            continue
        if flags["stack"] is not None and random.random() < 0.5:
            flags["calibration"] = _calibration(random, report, flags["stack"])
        made.append((model, cluster, flags))
    return made


def _calibration(random: Random, report: Any, stack: str) -> str:
    device = report.plan.cluster.groups[0].device
    factors = replace(Factors(), **{name: random.uniform(0.7, 1.5) for name in FACTOR_NAMES})
    name = f"{stack}-{device}-{random.randrange(10**6)}"[-60:].lstrip("-")
    made = unfitted(factors, name, device, stack)
    made = replace(made, pricing_version=PRICING_VERSION, fitted_on=("a",), half_width=0.1)
    save_calibration(made)
    return name


def differences(request: tuple[str, str, dict[str, Any]], folder: Path) -> list[str]:
    """Ways in which a report is priced otherwise than it was."""
    model, cluster, flags = request
    first = sw.simulate(model, cluster, **flags)
    file, said = first.save(folder / "plan.json"), first.to_dict()
    text = json.dumps({"plan": said})
    status, answer = run_operation("simulation", text.encode(), 60.0)
    assert status == 200, answer
    again = {
        "a document": sw.simulate(said),
        "a file": sw.simulate(file),
        "a handle": sw.simulate(first),
    }
    found = {name: handle.prediction.to_document() for name, handle in again.items()}
    found["over HTTP"] = json.loads(answer)["prediction"]
    wanted = json.loads(json.dumps(said["prediction"]))
    return [n for n, given in found.items() if json.loads(json.dumps(given)) != wanted]
