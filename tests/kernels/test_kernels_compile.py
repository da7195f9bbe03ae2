"""Our Triton kernels compile for devices that are not here, by Triton's own assembler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "kernel_doubles" / "compile_kernels.py"
KERNELS = {
    *("_encode", "_decode", "_permute", "_unpermute", "_unpermute_backward", "_copy", "_sum"),
    "_signalled",
}


def machine_code(tmp_path: Path, *capabilities: int) -> list[dict[str, object]]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, str(SCRIPT), *map(str, capabilities)]
    result = subprocess.run(
        command,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


@pytest.mark.timeout(240)
def test_every_kernel_compiles_for_hopper(tmp_path: Path) -> None:
    found = machine_code(tmp_path, 90)
    assert {row["name"] for row in found} == KERNELS
    assert all(row["bytes"] for row in found)


@pytest.mark.evidence
@pytest.mark.timeout(600)
def test_every_kernel_compiles_for_ampere_and_blackwell(tmp_path: Path) -> None:
    found = machine_code(tmp_path, 80, 100)
    assert {(row["name"], row["on"]) for row in found} == {
        (k, c) for k in KERNELS for c in (80, 100)
    }
