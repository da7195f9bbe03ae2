"""The device that is measured, and everything that its figures depend on."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from harness.content_key import content_key
from harness.machine import machine
from harness.paths import BENCHMARKS, ROOT, commit

CPU_CLUSTER = "local:1"
MEASURED = ("kernels", "executor", "profiler", "costmodel", "planner", "datasets", "spec", "api")
"""Folders whose code a row depends on, with that of the report itself."""
VERSIONS = ("triton", "liger-kernel", "transformers", "pydantic")


def facts(device: torch.device) -> dict[str, Any]:
    """Device, driver, versions, date and commit, JSON-ready."""
    from importlib import metadata

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "not installed"

    about = machine()
    about["torch"] = torch.__version__
    about["accelerator"] = "none" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return {
        "machine": about,
        **_device(device),
        "versions": {name: version(name) for name in VERSIONS} | {"torch": torch.__version__},
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit([ROOT / name for name in MEASURED] + [BENCHMARKS / "gpu"]),
    }


def _device(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"device": "cpu", "cluster": CPU_CLUSTER, "count": 1}
    properties = torch.cuda.get_device_properties(device)
    name = catalogue_name(properties.name, properties.total_memory)
    return {
        "device": properties.name,
        "catalogue": name,
        "cluster": None if name is None else f"1x{name}",
        "count": torch.cuda.device_count(),
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "driver": _driver(),
    }


def catalogue_name(name: str, memory_bytes: int) -> str | None:
    """Catalogue's name of a device that torch names; None if unknown.

    Of those that an executor would run on it the one whose memory is nearest; PCIe only where
    torch says so.
    """
    from shardwright.datasets.catalogue.device import devices
    from shardwright.executor.launch.join import is_device

    is_pcie = "pcie" in name.lower()
    near = sorted(
        (entry for entry in devices().values() if is_device(entry.name, name)),
        key=lambda entry: (
            (entry.form.lower() == "pcie") != is_pcie,
            abs(entry.capacity_bytes - memory_bytes),
        ),
    )
    return near[0].name if near else None


def cluster_of(about: Mapping[str, Any]) -> str:
    """The device as a cluster of the catalogue.

    Raises:
        ValueError: the catalogue has no such device.
    """
    cluster: str | None = about["cluster"]
    if cluster is None:
        raise ValueError(f"the catalogue has no {about['device']}")
    return cluster


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown"
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return (done.stdout.split() or ["unknown"])[0] if done.returncode == 0 else "unknown"


def identity(about_device: Mapping[str, Any], reduced: bool) -> str:
    """Hash of device, versions and code that a row belongs to."""
    paths = [ROOT / name for name in MEASURED]
    paths += sorted(Path(BENCHMARKS / "gpu").rglob("*.py"))
    about = {
        "device": about_device["device"],
        "driver": about_device.get("driver"),
        "versions": about_device["versions"],
        "reduced": reduced,
        "code": content_key(paths),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
