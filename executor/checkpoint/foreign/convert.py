"""Conversion of a checkpoint, tensor by tensor, without ranks."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.state_dict_saver import save

from .... import __version__
from ....spec.codec import content_hash, parse_json, to_document
from ....spec.errors import InputError
from ....spec.model.layer_parameters import ParameterSpec
from ....spec.model.model_spec import ModelSpec
from ... import torch_compat
from ...engine.adamw import AdamWOptions
from ...engine.optimizers import optimizer_document
from ...huggingface.config import CONFIG_NAME, config_for, saved_config
from ...huggingface.families import layer_pieces, mapping
from ...huggingface.target import check_target
from ...huggingface.tensor_piece import TensorPiece
from ...huggingface.writer import FolderWriter
from ...stage.initial_weights import parameter_name
from ...stage.weight_source import full_ranges
from ..manifest import RunFacts
from ..storage.folders import step_folder, unfinished_folder
from ..storage.paths import CheckpointPath, document_text
from ..tensor_slices import TensorSlice, plan_saves, write_item
from ..writer import CheckpointWriter
from .dialect import COUNT, MOMENTS
from .lazy_planner import BoxSavePlanner, LazySavePlanner
from .look import is_ours
from .ours import MODEL, OPTIMIZER, OURS, read_ours
from .weights import ForeignWeights

FILE_BYTES = 256 << 20
"""Of a file that is written at once; a larger tensor is split by rows."""


@dataclass(frozen=True)
class Conversion:
    """A source of a model, and a folder to write.

    ``seq_len``: rows of a position table that the model leaves open.
    """

    folder: CheckpointPath
    model: ModelSpec
    seq_len: int
    out: CheckpointPath

    @cached_property
    def weights(self) -> ForeignWeights:
        """The source, checked against the model."""
        return ForeignWeights(self.folder, self.model, self.seq_len, "SRC")

    @cached_property
    def states(self) -> tuple[str, ...]:
        """Moments that the source has: all or none."""
        has = all(key in self.weights.dialect.states for key in MOMENTS)
        return MOMENTS if has else ()

    def value(self, key: str | None, index: int, spec: ParameterSpec) -> Tensor:
        """A whole parameter, or a moment of it."""
        return self.weights.read(key, index, spec, full_ranges(spec))

    def config(self) -> Mapping[str, Any]:
        """The source's configuration for transformers, or one made from the model."""
        path = self.folder / CONFIG_NAME
        if path.is_file():
            document = parse_json(document_text(path, "a model's configuration"), str(path))
            if isinstance(document, dict):
                return document
        return config_for(self.model, self.seq_len)

    def to(self, target: str) -> dict[str, Any]:
        """Write the folder; return its kind, tensors and step.

        Raises:
            InputError: another model, a folder that is not empty, an optimizer that is missing.
        """
        if isinstance(self.out, Path):
            check_target(self.out, "--out")
        elif target != OURS:
            allowed = f"a folder of this machine: {target} is written by its library"
            raise InputError("--out", str(self.out), allowed)
        elif self.out.exists() and any(self.out.iterdir()):
            raise InputError("--out", str(self.out), "a folder that is empty")
        written = self._written(target)
        return {"to": target, "out": str(self.out), "from": str(self.folder), **written}

    def _written(self, target: str) -> dict[str, Any]:
        if target == OURS or not isinstance(self.out, Path):
            return self._to_ours()
        return self._to_torch(self.out) if target == "dcp" else self._to_transformers(self.out)

    def _to_transformers(self, out: Path) -> dict[str, Any]:
        config = self.config()
        shapes = {piece.name: piece.shape for _, _, piece in self._pieces(config)}
        writer = FolderWriter(out, shapes, shard_bytes=FILE_BYTES)
        groups = _by_name(self._pieces(config))
        for name in shapes:
            writer.add(name, self._fused(None, groups[name]))
        writer.finish({CONFIG_NAME: saved_config(config)}, {})
        return {"tensors": len(shapes), "step": None}

    def _pieces(
        self, config: Mapping[str, Any]
    ) -> Iterator[tuple[int, ParameterSpec, TensorPiece]]:
        """Tensors of transformers' names, with layer and parameter."""
        names = mapping(config)
        for index in range(len(self.model.layers())):
            for spec, piece in layer_pieces(self.model, index, self.seq_len, names):
                yield index, spec, piece

    def _fused(
        self, key: str | None, pieces: list[tuple[int, ParameterSpec, TensorPiece]]
    ) -> Tensor:
        """A tensor of transformers', put together from our parameters."""
        tensor = torch.empty(pieces[0][2].shape)
        for index, spec, piece in pieces:
            if piece.expert is None:
                piece.put(self.value(key, index, spec), tensor)
                continue
            ranges = ((piece.expert, piece.expert + 1), *full_ranges(spec)[1:])
            one = self.weights.read(key, index, spec, ranges)[0]
            replace(piece, expert=None).put(one, tensor)
        return tensor

    def _to_torch(self, out: Path) -> dict[str, Any]:
        """Names of transformers under ``model.`` and ``optim.state.``, as get_state_dict has."""
        groups = _by_name(self._pieces(self.config()))
        step = torch.tensor(float(self.weights.step())) if self.states else None
        planner = LazySavePlanner()
        for name, pieces in groups.items():
            shape = pieces[0][2].shape
            planner.add(f"model.{name}", shape, partial(self._fused, None, pieces))
            for key in self.states:
                make = partial(self._fused, key, pieces)
                planner.add(f"optim.state.{name}.{key}", shape, make)
            if step is not None:
                planner.add(f"optim.state.{name}.{COUNT}", (), step.clone)
        writer = FileSystemWriter(out, single_file_per_rank=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            save(planner.shapes, storage_writer=writer, planner=planner, no_dist=True)
        return {"tensors": len(planner.shapes), "step": None if step is None else int(step)}

    def _to_ours(self) -> dict[str, Any]:
        weights = self.weights
        weights.require_optimizer()
        step, run = weights.step(), self._run()
        writer = CheckpointWriter(
            unfinished_folder(self.out, step, secrets.token_hex(4)),
            step_folder(self.out, step),
            run,
            step,
        )
        self.out.mkdir(exist_ok=True)
        writer.set_up_storage_writer(True)
        rows, results = [], []
        for number, slices in enumerate(_files(self._slices(step))):
            made = [row for name, part in slices for row in part.rows(name)]
            plan = SavePlan([write_item(row) for row in made], storage_data=number)
            planner = BoxSavePlanner({(n, part.offsets): part.tensor for n, part in slices})
            results.append(writer.write_data(plan, planner).value())
            rows += made
        _, metadata = plan_saves([rows])
        writer.finish(metadata, results)
        return {"tensors": len({row[0] for row in rows}), "step": step}

    def _slices(self, step: int) -> Iterator[tuple[str, TensorSlice]]:
        """Every tensor of a checkpoint of ours, in parts of at most ``FILE_BYTES``."""
        for index, spec in self.weights.parameters():
            name = parameter_name(index, spec)
            yield from _parts(MODEL + name, _saved(spec, self.value(None, index, spec)))
            for key in MOMENTS:
                value = _saved(spec, self.value(key, index, spec))
                yield from _parts(f"{OPTIMIZER}{key}.{name}", value)
            count = TensorSlice.unsplit(torch.tensor(float(step)))
            yield f"{OPTIMIZER}{COUNT}.{name}", count
        yield "random.cpu.0", TensorSlice.unsplit(torch.Generator().manual_seed(0).get_state())

    def _run(self) -> RunFacts:
        """Facts of the run: those of a checkpoint of ours, else that it was converted."""
        if is_ours(self.folder):
            return replace(read_ours(self.folder)[1].run, ranks=1)
        source = self.weights.source
        return RunFacts(
            plan="converted",
            model=content_hash(self.model),
            seed=0,
            text="converted",
            global_batch=0,
            seq_len=self.seq_len,
            ranks=1,
            optimizer=optimizer_document("adamw", AdamWOptions()),
            versions={"shardwright": __version__, "torch": torch_compat.version()},
            model_document=to_document(self.model),
            previous={"folder": str(self.folder), "step": self.weights.step(), "of": source.kind},
        )


def _by_name(
    pieces: Iterator[tuple[int, ParameterSpec, TensorPiece]],
) -> dict[str, list[tuple[int, ParameterSpec, TensorPiece]]]:
    groups: dict[str, list[tuple[int, ParameterSpec, TensorPiece]]] = {}
    for row in pieces:
        groups.setdefault(row[2].name, []).append(row)
    return groups


def _saved(spec: ParameterSpec, value: Tensor) -> Tensor:
    """A parameter as it is saved: experts and their rows are one dimension."""
    return value.flatten(0, 1) if spec.expert else value


def _parts(name: str, value: Tensor) -> Iterator[tuple[str, TensorSlice]]:
    """A tensor, split by rows where it is larger than a file."""
    rows = value.shape[0] if value.dim() else 1
    each = max(1, rows * FILE_BYTES // max(value.nbytes, 1)) if value.nbytes > FILE_BYTES else rows
    if each >= rows:
        yield name, TensorSlice.unsplit(value)
        return
    for first in range(0, rows, each):
        offsets = (first, *[0] * (value.dim() - 1))
        yield name, TensorSlice(value[first : first + each], tuple(value.shape), offsets)


def _files(
    slices: Iterator[tuple[str, TensorSlice]],
) -> Iterator[list[tuple[str, TensorSlice]]]:
    """Slices by file, of at most ``FILE_BYTES`` together where one is not larger."""
    held: list[tuple[str, TensorSlice]] = []
    size = 0
    for name, part in slices:
        if held and size + part.tensor.nbytes > FILE_BYTES:
            yield held
            held, size = [], 0
        held.append((name, part))
        size += part.tensor.nbytes
    if held:
        yield held
