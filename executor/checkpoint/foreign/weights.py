"""ForeignWeights: parameters and optimizer states of a source, by parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from ....spec.errors import InputError
from ....spec.model.layer_parameters import ParameterSpec
from ....spec.model.model_spec import ModelSpec
from ...huggingface.config import CONFIG_NAME, check_config
from ...huggingface.families import own_parameters
from ...stage.weight_source import Ranges, sampled_bytes
from ..storage.far_path import FarPath
from ..storage.paths import CheckpointPath, document_text
from .archive import open_file
from .dialect import COUNT, MASTER, MOMENTS, dialect_of
from .look import is_ours, look
from .ours import read_ours
from .source import ForeignSource
from .tensors import TensorReader

SETTINGS = ("weight_decay", "eps")
MEGATRON_FORMATS = "optimizer.distributed."


class ForeignWeights:
    """The weights of a model in a source; see :class:`weight_source.WeightSource`.

    Args:
        folder: of a checkpoint of any kind.
        model: of the plan; the source's must be the same.
        where: how to name the folder in an error.

    Raises:
        InputError: another model, a tensor that lacks, a file that is torn or hostile.
    """

    def __init__(
        self, folder: CheckpointPath, model: ModelSpec, seq_len: int, where: str = "--init-from"
    ) -> None:
        self._model, self._seq_len = model, seq_len
        if isinstance(folder, FarPath) and (folder / CONFIG_NAME).exists():
            _check_far_config(folder, model, seq_len, where)
        self.source = read_ours(folder)[0] if is_ours(folder) else look(folder, where)
        self.dialect = dialect_of(self.source, model, seq_len)
        self.folder = self.source.folder
        self.reader = TensorReader(self.source)
        self._layers = model.layers()
        self._master = next((key for key in MASTER if key in self.dialect.states), None)

    def read_range(self, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """A part of a parameter, float32 on the CPU; master weights where there are any."""
        if self._master is not None:
            return self.read_state(self._master, index, spec, ranges)
        return self._read(index, spec, ranges, self.dialect.prefix, "")

    def read(self, key: str | None, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """A part of a parameter, or of the state ``key`` of it."""
        if key is None:
            return self.read_range(index, spec, ranges)
        return self.read_state(key, index, spec, ranges)

    def read_state(self, key: str, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """A part of a moment (``exp_avg`` or ``exp_avg_sq``) or of master weights, as weights."""
        before, after = self.dialect.states[key]
        return self._read(index, spec, ranges, before, after)

    def _read(
        self, index: int, spec: ParameterSpec, ranges: Ranges, before: str, after: str
    ) -> Tensor:
        values: list[Tensor] = []
        stacked = False
        for piece in self.dialect.pieces(index, self._layers[index], spec):
            inner = ranges
            if piece.expert is not None:
                stacked, inner = True, ranges[1:]
                if not ranges[0][0] <= piece.expert < ranges[0][1]:
                    continue
            name = f"{before}{piece.name}{after}"
            if name not in self.source.tensors:
                raise InputError(str(self.folder), f"no tensor {name}", "one of every weight")
            value = piece.read(inner, lambda box, name=name: self.reader.read(name, box))  # type: ignore[misc]
            values.append(value.to(torch.float32, copy=True).contiguous())
        return torch.stack(values) if stacked else values[0]

    def require_optimizer(self) -> None:
        """Refuse a source without moments of AdamW by name.

        Raises:
            InputError: what it has instead, and what to save.
        """
        if all(key in self.dialect.states for key in MOMENTS):
            return
        where, names = str(self.folder), (*self.source.tensors, *self.source.values)
        if any(name.startswith(MEGATRON_FORMATS) for name in names):
            allowed = "distrib_optim_sharding_type fully_reshardable: save it again so"
            raise InputError(where, "an optimizer in the layout of its ranks", allowed)
        if any(name.endswith(tuple(f".{key}" for key in MOMENTS)) for name in names):
            allowed = "moments by name of weight: save get_optimizer_state_dict(model, optimizer)"
            raise InputError(where, "an optimizer with moments by number", allowed)
        raise InputError(where, "no optimizer", "a checkpoint with AdamW's moments, or --init-from")

    def parameters(self) -> list[tuple[int, ParameterSpec]]:
        """Every parameter of the model, with its layer's index."""
        return [
            (index, spec)
            for index in range(len(self._layers))
            for spec in own_parameters(self._model, index, self._seq_len)
        ]

    def group_settings(self) -> dict[str, float]:
        """Numbers of the optimizer's groups by name, where all weights with one have the same."""
        rows: dict[str, set[float]] = {}
        for name in self.source.values:
            key = name.rpartition(".")[2]
            if ".param_groups." in name and key in SETTINGS:
                value = self.source.read_value(name)
                if isinstance(value, float):
                    rows.setdefault(key, set()).add(value)
        for row in _groups(self.source.common):
            for key in SETTINGS:
                if isinstance(value := row.get(key), float):
                    rows.setdefault(key, set()).add(value)
        return {key: max(found) for key, found in rows.items() if len(found - {0.0}) < 2}

    def step(self) -> int:
        """Optimizer steps done.

        Raises:
            InputError: it is not said.
        """
        step = step_of(self.source, self.reader)
        if step is None:
            allowed = "a checkpoint after at least one step"
            raise InputError(str(self.folder), "no step count", allowed)
        return step

    def digest(self) -> str:
        """Short digest: sizes and samples of all files."""
        return sampled_bytes(
            (file, partial(open_file, self.folder / file)) for file in self.source.files
        )


def _check_far_config(folder: FarPath, model: ModelSpec, seq_len: int, where: str) -> None:
    """Compare a configuration by URL with the plan's model, by a copy of it here."""
    text = document_text(folder / CONFIG_NAME, "a model's configuration")
    with TemporaryDirectory() as here:
        (Path(here) / CONFIG_NAME).write_text(text)
        try:
            check_config(Path(here), model, seq_len, where)
        except InputError as error:
            far = str(folder)
            allowed = error.allowed.replace(here, far)
            raise InputError(error.field.replace(here, far), error.given, allowed) from None


def step_of(source: ForeignSource, reader: TensorReader) -> int | None:
    """Optimizer steps that a source says were done; None if it does not."""
    for value in _steps(source, reader):
        if isinstance(value, Tensor):
            value = float(value)
        if isinstance(value, (int, float)) and value >= 1 and value == int(value):
            return int(value)
    return None


def _steps(source: ForeignSource, reader: TensorReader) -> Iterator[object]:
    """Counts of steps, the surest first."""
    yield source.step
    for name, tensor in source.tensors.items():
        if name.rpartition(".")[2] == COUNT and not tensor.shape:
            yield reader.read(name)
            break
    yield from (row.get(COUNT) for row in _groups(source.common))
    yield source.common.get("iteration")
    for name in source.values:
        if name.rpartition(".")[2] in (COUNT, "iteration"):
            yield source.read_value(name)


def _groups(common: object) -> list[dict[str, object]]:
    """The parameter groups in Megatron's common values."""
    optimizer = common.get("optimizer") if isinstance(common, dict) else None
    inner = optimizer.get("optimizer", optimizer) if isinstance(optimizer, dict) else None
    groups = inner.get("param_groups") if isinstance(inner, dict) else None
    rows = groups if isinstance(groups, list) else []
    return [row for row in rows if isinstance(row, dict)]
