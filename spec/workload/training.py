"""Trained parts of a model.

Everything, adapters beside frozen weights, or some towers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..model.layer_parameters import ParameterSpec, layer_parameters
from ..model.layers import BlockLayer, Layer
from ..model.model_spec import ModelSpec
from .base_formats import BaseFormat, QuantizedBase, is_quantized
from .number_formats import Dtype

NOT_ADAPTED = frozenset({"router", "shared_expert_gate", "relative", "cross_relative", "conv"})
"""Matrices that are no linear layer, and routers and gates, which route tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters beside frozen linear layers (Hu et al., arXiv:2106.09685).

    A layer x -> W x becomes W x + (alpha / rank) B A x with A (rank, in) and B (out, rank), the
    only trained parameters. ``base_dtype`` is the format of frozen weights (None: that of
    parameters); 4- and 8-bit ones are those of linear layers alone, see ``base_formats``.
    """

    rank: Annotated[int, Field(ge=1, le=2**16)] = 16
    alpha: Annotated[float, Field(gt=0)] = 32.0
    targets: tuple[str, ...] = ("query", "value")
    base_dtype: BaseFormat | None = None

    @property
    def scale(self) -> float:
        """Factor on an adapter's product."""
        return self.alpha / self.rank

    @property
    def quantized_base(self) -> QuantizedBase | None:
        """Format of frozen linear layers in 4 or 8 bits, if they are."""
        return self.base_dtype if is_quantized(self.base_dtype) else None

    @property
    def plain_base(self) -> Dtype | None:
        """Format of frozen weights where it is one of the parameters' formats."""
        match self.base_dtype:
            case "nf4" | "int8":
                return None
            case name:
                return name


@dataclass(frozen=True, slots=True)
class LayerTraining:
    """Training of one layer.

    ``weights``: its own weights have gradients and optimizer states. ``backward``: gradients pass
    through it, because it or a layer before it is trained. ``adapters``: those beside its frozen
    linear layers.
    """

    weights: bool = True
    backward: bool = True
    adapters: Lora | None = None

    @property
    def trains(self) -> bool:
        """True if anything of the layer is trained."""
        return self.weights or self.adapters is not None

    def trains_parameter(self, spec: ParameterSpec) -> bool:
        """True if this parameter has gradients and optimizer states."""
        return self.weights or is_adapter(spec)


FULLY_TRAINED = LayerTraining()


def target_names(model: ModelSpec) -> tuple[str, ...]:
    """Linear layers that may get adapters, in model order.

    Experts, routers and everything that is no plain projection are left out.
    """
    names = dict[str, None]()
    for layer in model.kinds():
        if isinstance(layer, BlockLayer):
            for spec in layer_parameters(layer):
                name, _, suffix = spec.name.rpartition(".")
                if suffix == "weight" and len(spec.shape) == 2 and not spec.expert:
                    names[name] = None
    return tuple(name for name in names if name not in NOT_ADAPTED)


def layer_trainings(
    model: ModelSpec, adapters: Lora | None, frozen: tuple[str, ...]
) -> tuple[LayerTraining, ...]:
    """The training of each layer, by layer number.

    Adapters freeze everything else; frozen towers have none. The backward ends, along each path of
    towers, at the first trained layer.
    """
    trainings: list[LayerTraining] = []
    trains_before: dict[str, bool] = {}
    for tower in model.towers:
        backward = any(
            trains_before[edge.source] for edge in model.edges if edge.target == tower.name
        )
        for layer in tower.expand():
            trained_tower = tower.name not in frozen
            lora = adapters if trained_tower and isinstance(layer, BlockLayer) else None
            weights = trained_tower and adapters is None
            backward = backward or weights or lora is not None
            trainings.append(LayerTraining(weights, backward, lora))
        trains_before[tower.name] = backward
    return tuple(trainings)


def is_adapter(spec: ParameterSpec) -> bool:
    """True if a parameter is a matrix of an adapter."""
    return spec.name.endswith((".adapter_a", ".adapter_b"))


def parameters_with_adapters(
    layer: Layer, seq_len: int, training: LayerTraining
) -> tuple[ParameterSpec, ...]:
    """A layer's parameters, each adapter after the weight that it stands beside."""
    specs: list[ParameterSpec] = []
    for spec in layer_parameters(layer, seq_len):
        specs.append(spec)
        if training.adapters is not None:
            specs += adapter_specs(spec, training.adapters)
    return tuple(specs)


def adapter_specs(spec: ParameterSpec, lora: Lora) -> tuple[ParameterSpec, ...]:
    """The two adapter matrices of one weight; None if no target.

    A matrix splits over tensor-parallel ranks along its weight's split dimension; unsplit, its
    gradient is a partial sum wherever the weight's would be.
    """
    name, _, suffix = spec.name.rpartition(".")
    if suffix != "weight" or name not in lora.targets or spec.expert:
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
