"""HuggingFaceCheckpoint: initial weights from a folder of the transformers library.

Files are memory-mapped safetensors; a slice reads only its own bytes, so a rank reads only its
shards. Pickled files are never opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...spec.codec import parse_json, read_text
from ...spec.errors import InputError, RunError
from ...spec.model.layer_parameters import ParameterSpec
from ...spec.model.model_spec import ModelSpec
from ..stage.weight_source import Ranges, sampled_digest
from .config import check_config
from .families import BASES, is_ignorable, mapping, tensor_shapes

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("F64", "F32", "F16", "BF16")


class HuggingFaceCheckpoint:
    """The weights of a model in a folder; see :class:`weight_source.Values`.

    Args:
        folder: with config.json and safetensors files.
        model: of the plan; the folder's must be the same.
        where: how to name the folder in an error.

    Raises:
        InputError: another model, or files that lack a tensor, hold another, or are broken.
    """

    def __init__(
        self, folder: Path, model: ModelSpec, seq_len: int, where: str = "--init-from"
    ) -> None:
        self.folder = folder
        self.config = check_config(folder, model, seq_len, where)
        self._layers = model.layers()
        self._pieces = mapping(self.config)
        self.files = _weight_files(folder)
        self._handles = [_open(path) for path in self.files]
        self._holders = {name: handle for handle in self._handles for name in _names(handle)}
        self._check(model, seq_len)

    def read_range(self, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """A part of a parameter, float32 on the CPU; see :class:`weight_source.Values`."""
        values = []
        for piece in self._pieces(index, self._layers[index], spec):
            if piece.holds(ranges):
                value = self._slice(piece.name)[piece.place(ranges)]
                value = value.t() if piece.transposed else value
                values.append(value.to(torch.float32, copy=True).contiguous())
                stacked = piece.expert is not None
        return torch.stack(values) if stacked else values[0]

    def digest(self) -> str:
        """Short digest of the weights: sizes, headers and samples of all files."""
        return sampled_digest(self.files)

    def _stored_name(self, name: str) -> str | None:
        """Return a tensor's name in the files.

        Bare models drop the first word.
        """
        bare = next((name.removeprefix(base) for base in BASES if name.startswith(base)), name)
        return next((alias for alias in (name, bare) if alias in self._holders), None)

    def _slice(self, name: str) -> Any:
        stored = self._stored_name(name) or name
        return self._holders[stored].get_slice(stored)

    def _check(self, model: ModelSpec, seq_len: int) -> None:
        used = set()
        for index in range(len(self._layers)):
            for name, shape in tensor_shapes(model, index, seq_len, self._pieces).items():
                stored = self._stored_name(name)
                if stored is None:
                    raise InputError(f"{self.folder}", f"no tensor {name}", "every weight of it")
                used.add(stored)
                self._check_tensor(stored, shape)
        for name in self._holders:
            if name not in used and not is_ignorable(name, model.tie_embeddings):
                allowed = "the tensors of the model in its config.json"
                raise InputError(f"{self.folder}", f"tensor {name}", allowed)

    def _check_tensor(self, name: str, shape: tuple[int, ...]) -> None:
        lazy = self._holders[name].get_slice(name)
        stored_shape = tuple(lazy.get_shape())
        if stored_shape != shape:
            raise InputError(f"{self.folder}: {name}", f"shape {stored_shape}", f"shape {shape}")
        if lazy.get_dtype() not in FLOATS:
            allowed = "one of " + ", ".join(FLOATS)
            raise InputError(f"{self.folder}: {name}", lazy.get_dtype(), allowed)


def _weight_files(folder: Path) -> list[Path]:
    """The folder's safetensors files: the indexed ones, or the only one."""
    index = folder / INDEX
    if not index.is_file():
        if (folder / SINGLE).is_file():
            return [folder / SINGLE]
        allowed = f"{SINGLE}, or {INDEX} and its files; files that unpickle are not read"
        raise InputError(str(folder), "no safetensors", allowed)
    document = parse_json(read_text(index, "an index of weights"), str(index))
    names = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(names, dict) or not all(isinstance(x, str) for x in names.values()):
        raise InputError(str(index), "no weight_map", "an object of tensor and file names")
    files = [folder / name for name in sorted(set(names.values()))]
    for path in files:
        if path.parent != folder or not path.is_file():
            raise InputError(str(index), f"file {path.name}", "files in the same folder")
    return files


def _names(handle: Any) -> list[str]:
    return list(handle.keys())


def _open(path: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError:
        install = "pip install 'shardwright[run]'"
        raise RunError(f"reading weights needs safetensors: {install}") from None
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(str(path), reason, "a whole safetensors file") from None
