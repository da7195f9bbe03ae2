"""C++ sources beside this file, compiled at first use and kept by their content."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils import cpp_extension

from ...spec.errors import RunError

COMPILERS = ("g++", "clang++")
STANDARD = "-std=c++20"
FLAGS = (STANDARD, "-O2", "-fPIC", "-shared")
TIMEOUT_S = 300.0


def compiled_library(name: str) -> Path:
    """The shared library of the source ``name.cpp``, compiled where this torch has none yet.

    Raises:
        RunError: there is no compiler, or it fails.
    """
    source = Path(__file__).with_name(f"{name}.cpp")
    facts = [source.read_text(encoding="utf-8"), torch.__version__, *FLAGS]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    target = cache_folder() / f"{name}-{key}.so"
    if not target.exists():
        _compile(_compiler(), source, target)
    return target


def cache_folder() -> Path:
    """The folder of compiled libraries; it need not exist."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "shardwright" / "kernels"


def _compiler() -> str:
    chosen = os.environ.get("CXX")
    names = (chosen,) if chosen else COMPILERS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise RunError(
            f"planned addresses need a C++ compiler, and {' or '.join(names)} is not here: "
            "install one (apt-get install g++), or run the plan without them"
        )
    return found


def _compile(compiler: str, source: Path, target: Path) -> None:
    """Compile to a name of this process's own, then rename: ranks may do it at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    own = target.with_name(f"{target.name}.{os.getpid()}")
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    libraries = [f"-L{folder}" for folder in cpp_extension.library_paths()]
    command = [compiler, *FLAGS, *includes, str(source), "-o", str(own), *libraries, "-lc10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        last = next((line for line in done.stderr.splitlines() if "error" in line), "nothing said")
        raise RunError(f"planned addresses: {compiler} could not compile {source.name}: {last}")
    own.replace(target)
