"""Rotary angles and sliding windows, as configurations state them."""

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
    """Base of the rotary angles of heads that turn whole.

    Args:
        config: the configuration.
        theta: the class's default.
        key: where the base stands, if not in ``rope_parameters``.

    Raises:
        NotBuiltError: a part of the head that turns, in a class that ignores it.
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
    share: float,
    *,
    theta_key: str = "rope_theta",
    share_key: str = PARTIAL,
) -> tuple[float, int | None]:
    """Base of the rotary angles, and how many channels of a head turn (None: all).

    Args:
        config: the configuration.
        head_dim: channels of a head.
        share: the class's default of the part that turns.
        theta_key: where the base stands, if not in ``rope_parameters``.
        share_key: where the part stands, if not in ``rope_parameters``.

    Raises:
        InputError: a part outside (0, 1], or one that leaves an odd number of channels.
    """
    parameters = _rope_parameters(config)
    inner = TypedKeys(parameters, f"{config.where}: rope_parameters")
    base = inner.number("rope_theta") if inner.has("rope_theta") else None
    if base is None:
        base = config.number_or(theta_key, THETA)
    part = inner.number(PARTIAL) if inner.has(PARTIAL) else config.number_or(share_key, share)
    turned = int(head_dim * part)
    if turned > head_dim or not turned or turned % 2:
        allowed = f"a part of head_dim {head_dim} that is an even number of channels"
        raise InputError(f"{config.where}: {share_key}", part, allowed)
    return base, None if turned == head_dim else turned


def _rope_parameters(config: ConfigKeys) -> Mapping[str, Any]:
    """``rope_parameters``; scaling, there or under its older key, is listed as left out."""
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
    if kind != "default":
        config.assume("rope_scaling", kind, f"{kind} rope scaling is neither priced nor run")


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
    """A window on all layers but every ``full_every``-th, or as ``layer_types`` says."""
    if "sliding_window" in config.document and config.document["sliding_window"] is None:
        return [None] * layers
    window = config.count_or("sliding_window", default)
    types = config.choices("layer_types", layers, WINDOW_TYPES)
    if types is not None:
        return [None if kind == "full_attention" else window for kind in types]
    return [None if (i + 1) % full_every == 0 else window for i in range(layers)]


def asked_window(config: ConfigKeys) -> bool:
    """Whether ``use_sliding_window`` asks for a window (Qwen), and one is there to ask for."""
    asked = config.flag_or("use_sliding_window", False)
    return asked and config.document.get("sliding_window", 0) is not None


def qwen_window(config: ConfigKeys, layers: int, *, late: bool) -> list[int | None]:
    """Qwen: a window only if asked for, on the layers of ``layer_types``.

    Args:
        config: the configuration.
        layers: how many there are.
        late: where ``layer_types`` is left out, the window is on layers from
            ``max_window_layers`` on (Qwen2, Qwen3); else on every second one before it
            (Qwen2-MoE).
    """
    if not asked_window(config):
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
