"""An entry of the kernel table: operands, implementations, bytes and FLOPs.

Every file of ``families/`` has a function ``entries(sizes)``; the table collects them all, so a
new kernel adds a file or an entry and changes nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

FAMILIES = Path(__file__).resolve().parent / "families"
Mode = Literal["forward", "backward", "both"]
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of operands.

    ``activations`` are (tokens, width) of elementwise kernels, at least 64 MiB in bf16 in the
    full form; ``seq``, ``heads``, ``kv_heads`` and ``head_dims`` are attention's; ``tokens``,
    ``hidden`` and ``vocab`` the loss's; ``parameters`` the optimizer's.
    """

    dtype: torch.dtype
    activations: tuple[tuple[int, int], ...]
    seq: int
    heads: int
    kv_heads: int
    head_dims: tuple[int, ...]
    tokens: int
    hidden: int
    vocab: int
    parameters: int


FULL = Sizes(
    dtype=torch.bfloat16,
    activations=((8192, 4096), (16384, 8192)),
    seq=8192,
    heads=32,
    kv_heads=8,
    head_dims=(64, 128),
    tokens=8192,
    hidden=2048,
    vocab=128256,
    parameters=2**28,
)
TINY = Sizes(
    dtype=torch.float32,  # bf16 on cores goes other ways than on a device
    activations=((16, 256),),
    seq=32,
    heads=4,
    kv_heads=2,
    head_dims=(16,),
    tokens=32,
    hidden=64,
    vocab=320,
    parameters=2**12,
)


class Make:
    """Makes operands: random, on the device, of the type that is measured."""

    def __init__(self, device: torch.device, dtype: torch.dtype, seed: int) -> None:
        self.device, self.dtype = device, dtype
        self._generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Normally distributed numbers."""
        kind = dtype or self.dtype
        return torch.randn(shape, generator=self._generator, device=self.device, dtype=kind)

    def whole(self, below: int, *shape: int) -> Tensor:
        """Whole numbers from 0 to below ``below``, int64."""
        return torch.randint(below, shape, generator=self._generator, device=self.device)


class Work(NamedTuple):
    """Least bytes to move (inputs once, outputs once), and operations."""

    bytes: int
    flops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One kernel at one size, one way.

    ``ours`` takes the run's kernels and the operands, ``eager`` and ``reference`` the operands.
    The first ``inputs`` operands have gradients; all that are not whole numbers where it is None.
    ``mode`` is what is timed: forward without gradients, backward alone (each run on a graph of
    its own, for it may overwrite what it keeps), or both (of a loss). ``bound`` says which floor
    counts, and ``judged`` whether the targets of memory-bound kernels are asked of it.
    ``reference`` is eager where there is none; ours is held against it in float32, by the norm of
    the difference over the norm, to at most ``error_limit``; None for what is random. ``peak``
    compares peaks of memory too, and ``compiled`` is whether eager goes through torch.compile.
    """

    family: str
    case: str
    mode: Mode
    make: Callable[[Make], tuple[Any, ...]]
    ours: Function
    eager: Function
    work: Work
    inputs: int | None = None
    bound: Literal["memory", "matmul"] = "memory"
    judged: bool = True
    reference: Function | None = None
    error_limit: float | None = 2e-2
    peak: bool = False
    compiled: bool = True

    @property
    def key(self) -> str:
        """Name of the row."""
        return f"{self.family} {self.mode}, {self.case}"

    def differentiable(self, operands: Sequence[Any]) -> list[Tensor]:
        """The operands that have gradients."""
        chosen = operands[: self.inputs]
        return [x for x in chosen if isinstance(x, Tensor) and x.is_floating_point()]


def collected(sizes: Sizes, folder: Path = FAMILIES) -> Iterator[Entry]:
    """Entries of every family, first sizes before second ones."""
    entries: list[Entry] = []
    for name in sorted(path.stem for path in folder.glob("*.py")):
        entries += importlib.import_module(f"gpu.families.{name}").entries(sizes)
    keys = [entry.key for entry in entries]
    if len(set(keys)) != len(keys):
        raise ValueError(f"two entries are called {max(keys, key=keys.count)}")
    later = f"{sizes.activations[-1][0]} x" if len(sizes.activations) > 1 else None
    yield from (e for e in entries if later is None or not e.case.startswith(later))
    yield from (e for e in entries if later is not None and e.case.startswith(later))


def unjudged_families(sizes: Sizes) -> list[str]:
    """Families of which no row is judged, in order."""
    entries = [*collected(sizes)]
    judged = {entry.family for entry in entries if entry.judged}
    return list(dict.fromkeys(e.family for e in entries if e.family not in judged))
