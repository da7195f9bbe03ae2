"""Our own checkpoints as a source, and their names."""

from __future__ import annotations

from ....spec.errors import InputError
from ....spec.model.layer_parameters import ParameterSpec
from ....spec.model.layers import Layer
from ...stage.initial_weights import parameter_name
from ..manifest import DamagedManifestError, Manifest, read_manifest
from ..storage.folders import MANIFEST, step_folders, step_of
from ..storage.paths import CheckpointPath
from .row_map import RowRun, SourcePiece
from .source import Box, ByteRange, ForeignSource, ForeignTensor

OURS = "shardwright"
MODEL, OPTIMIZER = "model.", "optimizer."


def newest(folder: CheckpointPath) -> CheckpointPath:
    """The checkpoint itself, or the newest of a folder."""
    return folder if (folder / MANIFEST).exists() else step_folders(folder)[0]


def read_ours(folder: CheckpointPath) -> tuple[ForeignSource, Manifest]:
    """A checkpoint of ours as a source, and its manifest.

    Raises:
        InputError: a damaged manifest.
    """
    path = newest(folder)
    try:
        manifest = read_manifest(path)
    except DamagedManifestError as error:
        raise InputError(str(path), f"a manifest that {error}", "a whole checkpoint") from None
    tensors = {
        name: ForeignTensor(
            tensor.dtype,
            tensor.shape,
            tuple(
                Box(p.offsets, p.sizes, ByteRange(p.file, p.first_byte, p.bytes))
                for p in tensor.parts
            ),
        )
        for name, tensor in manifest.tensors.items()
    }
    step = manifest.step if step_of(path) is None else step_of(path)
    return ForeignSource(OURS, path, tensors, step=step), manifest


def pieces(index: int, layer: Layer, spec: ParameterSpec) -> tuple[SourcePiece, ...]:
    """The tensors of a parameter; experts and their rows are one dimension."""
    name = parameter_name(index, spec)
    if not spec.expert:
        return (SourcePiece(name=name, shape=spec.shape),)
    experts, rows, *rest = spec.shape
    shape = (experts * rows, *rest)
    return tuple(
        SourcePiece(name=name, shape=shape, runs=(RowRun(0, n * rows, rows),), expert=n)
        for n in range(experts)
    )


def states(source: ForeignSource) -> dict[str, tuple[str, str]]:
    """Prefixes of optimizer states' names before those of weights, by state."""
    keys = {
        name.removeprefix(OPTIMIZER).partition(".")[0]
        for name in source.tensors
        if name.startswith(OPTIMIZER)
    }
    return {key: (f"{OPTIMIZER}{key}.", "") for key in sorted(keys)}
