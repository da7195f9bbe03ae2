"""What of a model is trained: everything, adapters beside frozen weights, or some towers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..model.layer_parameters import ParameterSpec, layer_parameters
from ..model.layers import BlockLayer, Layer
from ..model.model_spec import ModelSpec
from .number_formats import Dtype

NOT_ADAPTED = frozenset({"router", "shared_expert_gate", "relative", "cross_relative", "conv"})
"""Matrices that are no linear layer, or one that decides where tokens go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters beside frozen linear layers (Hu et al., arXiv:2106.09685).

    A layer x -> W x becomes W x + (alpha / rank) B A x with A (rank, in) and B (out, rank),
    which alone are trained. ``base_dtype`` is the format that frozen weights are kept in (None:
    that of parameters).
    """

    rank: Annotated[int, Field(ge=1, le=2**16)] = 16
    alpha: Annotated[float, Field(gt=0)] = 32.0
    targets: tuple[str, ...] = ("query", "value")
    base_dtype: Dtype | None = None

    @property
    def scale(self) -> float:
        """What an adapter's product is multiplied with."""
        return self.alpha / self.rank


@dataclass(frozen=True, slots=True)
class LayerTraining:
    """What training does to one layer.

    ``weights``: its own weights have gradients and optimizer states. ``backward``: gradients
    pass through it, because it or a layer before it is trained. ``adapters``: what stands
    beside its frozen linear layers.
    """

    weights: bool = True
    backward: bool = True
    adapters: Lora | None = None

    @property
    def trains(self) -> bool:
        """Whether anything of the layer is trained."""
        return self.weights or self.adapters is not None

    def trains_parameter(self, spec: ParameterSpec) -> bool:
        """Whether one of the layer's parameters has gradients and optimizer states."""
        return self.weights or is_adapter(spec)


FULLY_TRAINED = LayerTraining()


def target_names(model: ModelSpec) -> tuple[str, ...]:
    """The linear layers of the model's blocks that adapters may stand beside, in model order.

    Experts, routers and what is no plain projection are left out.
    """
    found = dict[str, None]()
    for layer in model.kinds():
        if isinstance(layer, BlockLayer):
            for spec in layer_parameters(layer):
                name, _, what = spec.name.rpartition(".")
                if what == "weight" and len(spec.shape) == 2 and not spec.expert:
                    found[name] = None
    return tuple(name for name in found if name not in NOT_ADAPTED)


def layer_trainings(
    model: ModelSpec, adapters: Lora | None, frozen: tuple[str, ...]
) -> tuple[LayerTraining, ...]:
    """What training does to each layer, by layer number.

    With adapters everything but them is frozen; frozen towers have none. The backward ends at
    the first layer, along each path of towers, that is trained.
    """
    found: list[LayerTraining] = []
    reached: dict[str, bool] = {}
    for tower in model.towers:
        before = any(reached[edge.source] for edge in model.edges if edge.target == tower.name)
        for layer in tower.expand():
            asks = tower.name not in frozen
            beside = adapters if asks and isinstance(layer, BlockLayer) else None
            weights = asks and adapters is None
            before = before or weights or beside is not None
            found.append(LayerTraining(weights, before, beside))
        reached[tower.name] = before
    return tuple(found)


def is_adapter(spec: ParameterSpec) -> bool:
    """Whether a parameter is a matrix of an adapter."""
    return spec.name.endswith((".adapter_a", ".adapter_b"))


def parameters_with_adapters(
    layer: Layer, seq_len: int, training: LayerTraining
) -> tuple[ParameterSpec, ...]:
    """A layer's parameters, each adapter after the weight that it stands beside.

    Args:
        layer: the layer.
        seq_len: rows of a position table whose length the model leaves open.
        training: what is trained of the layer.
    """
    found: list[ParameterSpec] = []
    for spec in layer_parameters(layer, seq_len):
        found.append(spec)
        if training.adapters is not None:
            found += adapter_specs(spec, training.adapters)
    return tuple(found)


def adapter_specs(spec: ParameterSpec, lora: Lora) -> tuple[ParameterSpec, ...]:
    """The two matrices beside one weight; none where it is no target.

    A matrix splits over tensor-parallel ranks along the dimension that its weight splits. Where
    there is none, its gradient is a part of a sum wherever the weight's would be.
    """
    name, _, what = spec.name.rpartition(".")
    if what != "weight" or name not in lora.targets or spec.expert:
        return ()
    out, width = spec.shape
    inner = 1 if spec.split_dim == 1 else None
    outer = 0 if spec.split_dim == 0 else None
    return (
        ParameterSpec(
            name=f"{name}.adapter_a",
            shape=(lora.rank, width),
            split_dim=inner,
            initial="fan_in",
            partial_gradient=spec.partial_gradient,
        ),
        ParameterSpec(
            name=f"{name}.adapter_b",
            shape=(out, lora.rank),
            split_dim=outer,
            initial="zeros",
            partial_gradient=spec.partial_gradient,
        ),
    )
