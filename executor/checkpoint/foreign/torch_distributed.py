"""Reader of torch's distributed checkpoint, and of Megatron-core's over it; loads no torch.

``.metadata`` is a pickle of tensors, parts and where each lies (torch.distributed.checkpoint); it
is read as values. Every part is an archive of torch's in a ``.distcp`` file. Megatron-core's
``torch_dist`` has ``metadata.json`` and ``common.pt`` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....spec.codec import parse_json
from ....spec.errors import InputError
from ..storage.paths import CheckpointPath, document_text
from .archive import ALLOWED, MAX_PICKLE_BYTES, Archive, open_file
from .pickle_values import (
    Name,
    PickleError,
    Record,
    TornPickleError,
    integers,
    pickle_values,
)
from .source import (
    Box,
    ByteRange,
    DamagedFileError,
    ForeignSource,
    ForeignTensor,
    checked_tensor,
)

METADATA, COMMON, MEGATRON_KIND = ".metadata", "common.pt", "metadata.json"
TORCH, MEGATRON = "torch distributed", "megatron-core torch_dist"
_FLAT = ("_flat_param", "flat_param")
_TYPES = "torch.distributed.checkpoint.metadata."


def read_torch_distributed(folder: CheckpointPath) -> ForeignSource:
    """The checkpoint in a folder with ``.metadata``.

    Raises:
        DamagedFileError: a part that is torn or missing.
        InputError: a foreign name, flat buffers of FSDP1, or another container.
    """
    where = str(folder / METADATA)
    try:
        root = _record(_read_pickle(folder / METADATA), "Metadata").state
        stored = _ranges(folder, root["storage_data"])
        tensors, values = {}, {}
        for name, row in root["state_dict_metadata"].items():
            if not isinstance(name, str) or not isinstance(row, Record):
                raise PickleError("a tensor has no name")
            if row.name == f"{_TYPES}BytesStorageMetadata":
                values[name] = _place(stored, name, None)
                continue
            _refuse_flat(folder, name)
            tensors[name] = checked_tensor(where, name, _tensor(name, row, stored))
    except (PickleError, KeyError, TypeError, AttributeError, IndexError) as error:
        reason = str(error) if isinstance(error, PickleError) else "it lacks what every one has"
        refusal = DamagedFileError if isinstance(error, TornPickleError) else InputError
        raise refusal(where, reason, ALLOWED) from None
    kind, common = _container(folder)

    def read_value(name: str) -> Any:
        with Archive(folder, values[name]) as archive:
            return archive.value()

    return ForeignSource(kind, folder, tensors, tuple(values), read_value, common)


def _size(path: CheckpointPath) -> int:
    with open_file(path) as file:
        return file.seek(0, 2)


def _read_pickle(path: CheckpointPath) -> Any:
    with open_file(path) as file:
        data = file.read(MAX_PICKLE_BYTES + 1)
    if len(data) > MAX_PICKLE_BYTES:
        raise PickleError(f"it has more than {MAX_PICKLE_BYTES} bytes")
    return pickle_values(data)


def _record(value: Any, kind: str) -> Record:
    if not isinstance(value, Record) or value.name != f"{_TYPES}{kind}":
        raise PickleError(f"it has something else than {kind}")
    return value


Stored = Mapping[tuple[str, tuple[int, ...] | None], ByteRange]
"""Byte ranges by tensor and offsets; without offsets for what is no tensor."""


def _ranges(folder: CheckpointPath, rows: Any) -> Stored:
    stored: dict[tuple[str, tuple[int, ...] | None], ByteRange] = {}
    sizes: dict[str, int] = {}
    for index, info in rows.items():
        key, place = _record(index, "MetadataIndex").state, info.state
        file, first, size = place["relative_path"], place["offset"], place["length"]
        if place.get("transform_descriptors"):
            raise PickleError("its parts are compressed")
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            raise PickleError(f"it leads to {str(file)[:80]}, outside its folder")
        if type(first) is not int or type(size) is not int or first < 0 or size < 0:
            raise PickleError("a part has no place in a file")
        if file not in sizes:
            sizes[file] = _size(folder / file)
        if first + size > sizes[file]:
            given = f"{sizes[file]} bytes, of which a part needs {first + size}"
            raise DamagedFileError(str(folder / file), given, ALLOWED)
        offset = key.get("offset")
        stored[key["fqn"], None if offset is None else integers(offset)] = ByteRange(
            file, first, size
        )
    return stored


def _place(stored: Stored, name: str, offsets: tuple[int, ...] | None) -> ByteRange:
    place = stored.get((name, offsets))
    if place is None and offsets is not None and not any(offsets):
        place = stored.get((name, None))
    if place is None:
        raise PickleError(f"{name[:80]} has a part that lies nowhere")
    return place


def _tensor(name: str, row: Record, stored: Stored) -> ForeignTensor:
    state = _record(row, "TensorStorageMetadata").state
    boxes = []
    for chunk in state["chunks"]:
        part = _record(chunk, "ChunkStorageMetadata").state
        offsets, sizes = integers(part["offsets"]), integers(part["sizes"])
        boxes.append(Box(offsets, sizes, _place(stored, name, offsets), archive=True))
    return ForeignTensor(_dtype(state["properties"]), integers(state["size"]), tuple(boxes))


def _dtype(properties: Any) -> str:
    found = [*properties.args, *properties.state.values()]
    names = [item.text for item in found if isinstance(item, Name)]
    if not names:
        raise PickleError("a tensor has no type")
    return names[0].removeprefix("torch.")


def _refuse_flat(folder: CheckpointPath, name: str) -> None:
    if name.rpartition(".")[2] in _FLAT:
        allowed = "tensors by name: save it again under fully_shard, or as FULL_STATE_DICT"
        raise InputError(str(folder), f"FSDP1's flat buffer {name}", allowed)


def _container(folder: CheckpointPath) -> tuple[str, Mapping[str, Any]]:
    """Kind of the container, and Megatron's common values."""
    path = folder / MEGATRON_KIND
    if not path.is_file():
        return TORCH, {}
    document = parse_json(document_text(path, "a container's kind"), str(path))
    backend = document.get("sharded_backend") if isinstance(document, dict) else None
    if backend != "torch_dist":
        nearest = "--ckpt-format torch_dist"
        raise InputError(str(path), f"container {backend}", "torch_dist", nearest)
    common = folder / COMMON
    if not common.is_file():
        return MEGATRON, {}
    with Archive(folder, ByteRange(COMMON, 0, _size(common))) as archive:
        value = archive.value()
    return MEGATRON, value if isinstance(value, dict) else {}
