"""Rotary embeddings and sliding windows of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError, NotBuiltError
from ..inputs.typed_keys import TypedKeys
from .config_keys import ConfigKeys

PARTIAL = "partial_rotary_factor"
THETA = 10000.0
WINDOW_TYPES = ("full_attention", "sliding_attention")


def rope_theta(config: ConfigKeys, theta: float = THETA, key: str = "rope_theta") -> float:
    """Rotary base of heads that are rotated as a whole.

    Args:
        config: the configuration.
        theta: the class's default.
        key: key of the base, if not in ``rope_parameters``.

    Raises:
        NotBuiltError: a partial rotation, in a class that ignores it.
    """
    parameters = _rope_parameters(config)
    partial = parameters.get(PARTIAL, config.document.get(PARTIAL))
    if partial not in (None, 1):
        raise NotBuiltError(f"{config.where}: {PARTIAL} {partial}", "use 1")
    if parameters.get("rope_theta") is not None:
        return TypedKeys(parameters, f"{config.where}: rope_parameters").number("rope_theta")
    return config.number_or(key, theta)


def partial_rope(
    config: ConfigKeys,
    head_dim: int,
    fraction: float,
    *,
    theta: float = THETA,
    theta_key: str = "rope_theta",
    fraction_key: str = PARTIAL,
) -> tuple[float, int | None]:
    """Rotary base, and the rotated channels of a head (None: all).

    Args:
        config: the configuration.
        head_dim: channels of a head.
        fraction: the class's default of the rotated fraction.
        theta: its default of the base.
        theta_key: key of the base, if not in ``rope_parameters``.
        fraction_key: key of the fraction, if not in ``rope_parameters``.

    Raises:
        InputError: a fraction outside (0, 1], or one that leaves an odd number of channels.
    """
    parameters = _rope_parameters(config)
    inner = TypedKeys(parameters, f"{config.where}: rope_parameters")
    base = inner.number("rope_theta") if inner.has("rope_theta") else None
    if base is None:
        base = config.number_or(theta_key, theta)
    rotated_fraction = (
        inner.number(PARTIAL) if inner.has(PARTIAL) else config.number_or(fraction_key, fraction)
    )
    rotary_dim = int(head_dim * rotated_fraction)
    if rotary_dim > head_dim or not rotary_dim or rotary_dim % 2:
        allowed = f"a part of head_dim {head_dim} that is an even number of channels"
        raise InputError(f"{config.where}: {fraction_key}", rotated_fraction, allowed)
    return base, None if rotary_dim == head_dim else rotary_dim


def _rope_parameters(config: ConfigKeys) -> Mapping[str, Any]:
    """``rope_parameters``; scaling, there or under its older key, becomes an assumption."""
    parameters = config.document.get("rope_parameters") or {}
    scaling = config.document.get("rope_scaling") or parameters
    if not isinstance(parameters, Mapping) or not isinstance(scaling, Mapping):
        allowed = "rope_scaling and rope_parameters as mappings"
        raise InputError(config.where, "something else", allowed)
    note_scaling(config, scaling)
    return parameters


def note_scaling(config: ConfigKeys, scaling: Mapping[str, Any]) -> None:
    """List a scaling of the angles as neither priced nor run."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "mrope":
        config.assume("rope_scaling", kind, "angles by time, height and width: priced as one")
    elif kind != "default":
        config.assume("rope_scaling", kind, f"{kind} rope scaling is neither priced nor run")


def rope_by_type(config: ConfigKeys, theta: float) -> float:
    """The rotary base of classes whose ``rope_parameters`` may go by the kind of layer.

    Raises:
        NotBuiltError: bases that differ.
    """
    parameters = config.document.get("rope_parameters") or {}
    inner = (
        [parameters.get(kind) for kind in WINDOW_TYPES] if isinstance(parameters, Mapping) else []
    )
    by_type = [part for part in inner if isinstance(part, Mapping)]
    if not by_type:
        return rope_theta(config, theta)
    bases = {}
    for kind, part in zip(WINDOW_TYPES, inner, strict=True):
        keys = TypedKeys(part if isinstance(part, Mapping) else {}, f"{config.where}: {kind}")
        note_scaling(config, keys.document)
        bases[kind] = keys.number("rope_theta") if keys.has("rope_theta") else theta
    if len(set(bases.values())) > 1:
        raise NotBuiltError(f"{config.where}: rope_parameters {bases}", "use one base")
    return bases[WINDOW_TYPES[0]]


def note_query_scale(config: ConfigKeys) -> None:
    """List a scale of queries at far positions as neither priced nor run."""
    parameters = config.document.get("rope_parameters") or {}
    key = "llama_4_scaling_beta"
    if isinstance(parameters, Mapping) and parameters.get(key):
        why = "a product of queries at far positions, neither priced nor run"
        config.assume(key, parameters[key], why)


def same_window(config: ConfigKeys, layers: int, default: int | None) -> list[int | None]:
    """One sliding window for all layers; null, or no default, means none."""
    key = "sliding_window"
    if key in config.document and config.document[key] is None:
        return [None] * layers
    if default is None and not config.has(key):
        return [None] * layers
    return [config.count_or(key, default or 1)] * layers


def patterned_window(
    config: ConfigKeys, layers: int, default: int, full_every: int
) -> list[int | None]:
    """A window on all layers but every ``full_every``-th, or by ``layer_types``."""
    if "sliding_window" in config.document and config.document["sliding_window"] is None:
        return [None] * layers
    window = config.count_or("sliding_window", default)
    types = config.choices("layer_types", layers, WINDOW_TYPES)
    if types is not None:
        return [None if kind == "full_attention" else window for kind in types]
    return [None if (i + 1) % full_every == 0 else window for i in range(layers)]


def uses_window(config: ConfigKeys) -> bool:
    """True if ``use_sliding_window`` (Qwen) is set and there is a window."""
    enabled = config.flag_or("use_sliding_window", False)
    return enabled and config.document.get("sliding_window", 0) is not None


def qwen_window(config: ConfigKeys, layers: int, *, late: bool) -> list[int | None]:
    """Qwen: a window only if ``use_sliding_window``, on the layers of ``layer_types``.

    Args:
        config: the configuration.
        layers: number of layers.
        late: without ``layer_types``, the window is on layers from ``max_window_layers`` on
            (Qwen2, Qwen3); else on every second one before it (Qwen2-MoE).
    """
    if not uses_window(config):
        return [None] * layers
    window = config.count_or("sliding_window", 4096)
    types = config.choices("layer_types", layers, WINDOW_TYPES)
    if types is not None:
        return [None if kind == "full_attention" else window for kind in types]
    key = "max_window_layers"
    border = config.count(key, 0) if config.has(key) else config.count_or(key, 28)
    if late:
        return [None if i < border else window for i in range(layers)]
    return [window if i < border and i % 2 == 0 else None for i in range(layers)]
