"""ParameterSpec: one parameter tensor, and constructors for the common shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .layers import NormKind

PartialGradient = Literal["never", "sequence_parallel", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter tensor of a layer.

    ``split_dim`` is the dimension that tensor parallelism splits, None for a replicated tensor.
    ``partial_gradient``: when a replicated parameter's gradient is this rank's term of a sum over
    the tensor-parallel ranks: with sequence parallelism, always, or never.
    ``initial`` fan_in is uniform within 1 / sqrt(last dimension), as torch makes linear layers.
    ``expert``: dimension 0 counts experts and is split over ep, ``split_dim`` over etp.
    """

    name: str
    shape: tuple[int, ...]
    split_dim: int | None = None
    initial: Literal["normal", "zeros", "ones", "fan_in"] = "normal"
    partial_gradient: PartialGradient = "never"
    expert: bool = False

    @property
    def elements(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)

    def local_shape(self, tp: int, rank: int = 0) -> tuple[int, ...]:
        """Shape on tensor-parallel rank ``rank`` of ``tp`` (rank 0 holds most)."""
        if self.split_dim is None or tp == 1:
            return self.shape
        size = self.shape[self.split_dim]
        start, stop = split_range(size, tp, rank)
        return (*self.shape[: self.split_dim], stop - start, *self.shape[self.split_dim + 1 :])

    def expert_shape(self, ep: int, etp: int) -> tuple[int, ...]:
        """Shape on a rank of an ``expert`` tensor.

        Both degrees divide what they split.
        """
        sizes = list(self.shape)
        sizes[0] //= ep
        if self.split_dim is not None:
            sizes[self.split_dim] //= etp
        return tuple(sizes)


def split_range(size: int, parts: int, index: int) -> tuple[int, int]:
    """Start and end of part ``index``, in parts of ceil(size / parts)."""
    part = -(-size // parts)
    return min(index * part, size), min((index + 1) * part, size)


ParameterSpecs = tuple[ParameterSpec, ...]


def replicated(name: str, shape: tuple[int, ...]) -> ParameterSpec:
    """A tensor held in full by every tensor-parallel rank.

    Each uses it on its own tokens.
    """
    return ParameterSpec(name=name, shape=shape, partial_gradient="sequence_parallel")


def replicated_linear(name: str, out: int, width: int, bias: bool) -> ParameterSpecs:
    """A projection that tensor parallelism does not split."""
    weight = replicated(f"{name}.weight", (out, width))
    return (weight, replicated(f"{name}.bias", (out,))) if bias else (weight,)


def norm(name: str, kind: NormKind | None, width: int, split: bool = False) -> ParameterSpecs:
    """Weight and bias of a norm; ``split``: over channels that tp splits."""
    if kind is None:
        return ()
    partial: PartialGradient = "never" if split else "sequence_parallel"
    dim = 0 if split else None
    specs = [
        ParameterSpec(
            name=f"{name}.weight",
            shape=(width,),
            initial="ones",
            split_dim=dim,
            partial_gradient=partial,
        )
    ]
    if kind == "layernorm":
        specs.append(
            ParameterSpec(
                name=f"{name}.bias",
                shape=(width,),
                initial="zeros",
                split_dim=dim,
                partial_gradient=partial,
            )
        )
    return tuple(specs)


def column(name: str, out: int, hidden: int, bias: bool) -> ParameterSpecs:
    """A projection whose output features are split."""
    weight = ParameterSpec(name=f"{name}.weight", shape=(out, hidden), split_dim=0)
    if not bias:
        return (weight,)
    return (weight, ParameterSpec(name=f"{name}.bias", shape=(out,), split_dim=0, initial="zeros"))


def row(name: str, hidden: int, width: int, bias: bool) -> ParameterSpecs:
    """A projection whose input features are split.

    Its bias is added once, to the sum.
    """
    weight = ParameterSpec(name=f"{name}.weight", shape=(hidden, width), split_dim=1)
    if not bias:
        return (weight,)
    offset = ParameterSpec(
        name=f"{name}.bias",
        shape=(hidden,),
        initial="zeros",
        partial_gradient="sequence_parallel",
    )
    return (weight, offset)


def per_head(name: str, heads: int) -> ParameterSpec:
    """One number for each head, split with the heads."""
    return ParameterSpec(name=name, shape=(heads,), split_dim=0)
