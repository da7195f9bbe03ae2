"""Layout of a manifest: its slices tile every tensor and every file.

The types of a manifest bound each value; here are the rules between values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

from .manifest import Manifest, StoredTensor
from .tensor_slices import dtype_of, plan_saves


def first_fault(manifest: Manifest) -> str | None:
    """The first rule that a manifest breaks, in words; None for a good one."""
    tensors = (_tensor_faults(name, tensor) for name, tensor in manifest.tensors.items())
    faults = chain(chain.from_iterable(tensors), _file_faults(manifest), _cover_faults(manifest))
    return next(faults, None)


def missing_random_state(manifest: Manifest) -> str | None:
    """The first random state of a rank that is not there; None if all are."""
    kinds = {name.split(".")[1] for name in manifest.tensors if name.startswith("random.")}
    wanted = (f"random.{kind}.{n}" for n in range(manifest.run.ranks) for kind in {"cpu", *kinds})
    return next((name for name in wanted if name not in manifest.tensors), None)


def _tensor_faults(name: str, tensor: StoredTensor) -> Iterator[str]:
    try:
        item_bytes = dtype_of(tensor.dtype).itemsize
    except ValueError as error:
        yield f"{name}: {error}"
        return
    for part in tensor.parts:
        if not len(part.offsets) == len(part.sizes) == len(tensor.shape):
            yield f"{name}: a slice has other dimensions than the tensor"
        elif any(
            first + size > whole
            for first, size, whole in zip(part.offsets, part.sizes, tensor.shape, strict=True)
        ):
            yield f"{name}: a slice reaches beyond the tensor"
        elif part.bytes != math.prod(part.sizes) * item_bytes:
            yield f"{name}: a slice has {part.bytes} bytes"
    if len({part.offsets for part in tensor.parts}) < len(tensor.parts):
        yield f"{name}: a slice is there twice"
    if sum(part.bytes for part in tensor.parts) != math.prod(tensor.shape) * item_bytes:
        yield f"{name}: its slices leave a gap or overlap"


def _file_faults(manifest: Manifest) -> Iterator[str]:
    ends = {name: stored.header_bytes for name, stored in manifest.files.items()}
    keys: dict[str, set[str]] = {name: set() for name in ends}
    slices = [part for tensor in manifest.tensors.values() for part in tensor.parts]
    for part in sorted(slices, key=lambda part: (part.first_byte, part.bytes)):
        if part.file not in ends:
            yield f"{part.file} is not among its files"
            continue
        if part.first_byte != ends[part.file] or part.key in keys[part.file]:
            yield f"{part.file}: {part.key} overlaps another slice or leaves a gap"
        ends[part.file] = part.first_byte + part.bytes
        keys[part.file].add(part.key)
    for name, stored in manifest.files.items():
        if not keys[name] or ends[name] != stored.bytes:
            yield f"{name}: its slices end at byte {ends[name]} of {stored.bytes}"


def _cover_faults(manifest: Manifest) -> Iterator[str]:
    for name, tensor in manifest.tensors.items():
        if len(tensor.parts) == 1:
            continue  # its size is that of the tensor
        rows = [
            (name, tensor.dtype, [*tensor.shape], [*part.offsets], [*part.sizes])
            for part in tensor.parts
        ]
        try:
            plan_saves([rows])
        except ValueError:
            yield f"{name}: its slices leave a gap or overlap"
