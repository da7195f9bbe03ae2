"""Read a folder of Galvatron's profilers, for one model on one cluster.

Galvatron names files by number format, model and cluster. A folder may hold several models: the
one whose name has the same letters and digits is taken, or the only one.
"""

from __future__ import annotations

from pathlib import Path

from ...spec.errors import InputError, nearest_name
from .profile import GalvatronProfile
from .read_machine import machine_files, read_machine
from .read_model import read_model

SHIPPED = Path(__file__).parent / "profiles"
"""The bundled profile: llama2-7b on nodes of 8 A100-class devices."""


def read_profile(
    folder: str | Path,
    model: str,
    dtype: str,
    seq_lens: tuple[int, ...],
    nodes: int,
    per_node: int,
) -> GalvatronProfile:
    """The profile of a model in a folder.

    Args:
        folder: of the files.
        model: the model's name, which chooses among several.
        dtype: the format of computation in file names, such as bf16.
        seq_lens: tokens of a sample, by layer type.
        nodes: nodes of the cluster.
        per_node: devices of a node.

    Raises:
        InputError: a file or key that is missing or unusable.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        allowed = "a folder that Galvatron's profilers wrote"
        raise InputError("--galvatron-profile", str(folder), allowed)
    for name in machine_files(nodes, per_node):
        if not (root / name).is_file():
            near = nearest_name(name, (path.name for path in root.glob("*.json")), count=1)
            raise InputError(str(root), f"no {name}", "a folder with that file", near)
    times = _model_file(root, "computation_profiling", dtype, model)
    memory = _model_file(root, "memory_profiling", dtype, model)
    return GalvatronProfile(
        model=read_model(times, memory, seq_lens),
        machine=read_machine(root, nodes, per_node),
        files=(times.name, memory.name, *machine_files(nodes, per_node)),
    )


def _model_file(root: Path, kind: str, dtype: str, model: str) -> Path:
    """The file of a kind for the model, or the only one."""
    start, end = f"{kind}_{dtype}_", "_all.json"
    files = sorted(root.glob(f"{start}*{end}"))
    if not files:
        raise InputError(str(root), f"no {start}*{end}", "a folder with that file")
    matches = [
        p for p in files if _normalized(p.name[len(start) : -len(end)]) == _normalized(model)
    ]
    if len(matches or files) > 1:
        names = ", ".join(path.name for path in files)
        raise InputError(str(root), f"{len(files)} models: {names}", f"one for {model}")
    return (matches or files)[0]


def _normalized(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
