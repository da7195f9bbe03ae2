"""Names that differ between torch's releases, and the list of private ones."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import shardwright
from shardwright.executor import torch_compat as torch_api
from shardwright.executor.launch.join import is_device, local_device
from shardwright.spec.errors import RunError

ROOT = Path(shardwright.__file__).parent


def test_this_torch_has_all_that_we_lean_on() -> None:
    assert torch_api.missing() == []


def test_what_is_missing_is_named_with_the_reason() -> None:
    found = torch_api.missing(["torch:no_such_name", "no_such_module:x", "torch:nn.Linear.gone"])
    assert [line.partition(":")[0] for line in found] == [
        "torch.no_such_name",
        "no_such_module.x",
        "torch.nn.Linear.gone",
    ]
    assert "No module named 'no_such_module'" in found[1]


def _private_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torch"):
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            if any(part.startswith("_") for part in parts[1:]):
                found |= {f"{node.module}:{alias.name}" for alias in node.names}
    return found


def test_every_private_import_of_torch_is_in_the_list() -> None:
    listed = {name.split(".<")[0] for name in torch_api.PRIVATE_NAMES}
    for folder in ("executor", "kernels", "profiler"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in _private_imports(path):
                known = any(entry == name or entry.startswith(f"{name}.") for entry in listed)
                assert known, f"{path.name} imports {name}"


def test_renamed_collectives_are_reached_in_one_place() -> None:
    words = ("dist.all_gather_", "dist.reduce_scatter_", "distributed.all_gather_single")
    users = [
        path.name
        for folder in ("executor", "profiler", "kernels")
        for path in (ROOT / folder).rglob("*.py")
        if any(word in path.read_text() for word in words)
    ]
    assert users == ["torch_compat.py"]


@pytest.mark.parametrize(
    ("name", "reported", "same"),
    [
        ("H100-SXM-80GB", "NVIDIA H100 80GB HBM3", True),
        ("H100-PCIE-80GB", "NVIDIA H100 PCIe", True),
        ("H100-SXM-80GB", "NVIDIA H100 PCIe", False),
        ("H200-SXM-141GB", "NVIDIA H200", True),
        ("A100-SXM-40GB", "NVIDIA A100-SXM4-40GB", True),
        ("A10-24GB", "NVIDIA A100-SXM4-40GB", False),
        ("A10-24GB", "NVIDIA A10G", False),
        ("A10G-24GB", "NVIDIA A10G", True),
        ("L4-24GB", "NVIDIA L40S", False),
        ("RTX-4090-24GB", "NVIDIA GeForce RTX 4090", True),
        ("RTX-3090-24GB", "NVIDIA GeForce RTX 4090", False),
        ("RTX-6000-Ada-48GB", "NVIDIA RTX 6000 Ada Generation", True),
        ("B200-SXM-180GB", "NVIDIA GB200", False),
        ("MI300X-192GB", "AMD Instinct MI300X", True),
    ],
)
def test_devices_are_told_apart_by_the_words_of_their_names(
    name: str, reported: str, same: bool
) -> None:
    assert is_device(name, reported) == same


def test_a_rank_takes_its_own_device_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: "NVIDIA H100 80GB HBM3")
    assert str(local_device("H100-SXM-80GB", 1)) == "cuda:1"
    with pytest.raises(RunError, match="runs on A100-SXM-80GB, but this machine has NVIDIA H100"):
        local_device("A100-SXM-80GB", 0)
    with pytest.raises(RunError, match="this machine has 2 CUDA devices"):
        local_device("H100-SXM-80GB", 2)
