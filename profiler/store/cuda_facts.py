"""Identity of this machine's GPUs and their software, without importing torch."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

NOT_INSTALLED = "not installed"
UNKNOWN = "unknown"
DRIVER = re.compile(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s")
VERSION = re.compile(r"\s*(\d+(?:\.\d+)+)\s*$", re.MULTILINE)
ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
ASK_S = 10.0
"""Time limit of the driver's tool."""
MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
CUDA = re.compile(r"^cuda\b[^=]*=\s*'([^']+)'", re.MULTILINE)
NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def cuda_facts(root: Path = Path("/")) -> dict[str, str]:
    """GPUs, driver, and versions of CUDA, NCCL, Triton, fused kernels."""
    counts = Counter(cuda_models(root))
    return {
        "gpus": ", ".join(f"{n} x {name}" for name, n in sorted(counts.items())) or UNKNOWN,
        "driver": _driver(root),
        "cuda": _cuda(),
        "nccl": _first_installed(NCCL),
        "triton": installed("triton"),
        "liger": installed("liger-kernel"),
    }


def cuda_models(root: Path = Path("/")) -> tuple[str, ...]:
    """The driver's name of each GPU of this machine.

    Empty if it tells nothing.
    """
    folder = root / "proc/driver/nvidia/gpus"
    texts = (_text(path) for path in sorted(folder.glob("*/information")))
    return tuple(match[1] for text in texts if (match := MODEL.search(text)))


def installed(package: str) -> str:
    """The version of a distribution, or ``NOT_INSTALLED``."""
    return _first_installed((package,))


def _first_installed(packages: Iterable[str]) -> str:
    for package in packages:
        if (version := _version(package)) is not None:
            return version
    return NOT_INSTALLED


@cache
def _version(package: str) -> str | None:
    """Cached, for finding and parsing a distribution's data takes milliseconds."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _driver(root: Path) -> str:
    match = DRIVER.search(_text(root / "proc/driver/nvidia/version"))
    return match[1] if match else _queried_driver()


@cache
def _queried_driver() -> str:
    """The version by the driver's own tool.

    In a container ``proc`` often lacks it.
    """
    try:
        output = subprocess.run(
            ASK_DRIVER, capture_output=True, text=True, timeout=ASK_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    match = VERSION.match(output)  # a line for each GPU; a driver has one version
    return match[1] if match else UNKNOWN


def _cuda() -> str:
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return NOT_INSTALLED
    match = CUDA.search(_text(Path(spec.origin).with_name("version.py")))
    return match[1] if match else "none"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
