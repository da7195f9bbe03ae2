"""A small transformer over leaves, evaluated by numpy where plans are priced.

Leaves attend to each other (pre-norm encoder: Vaswani et al. 2017; Xiong et al., ICML 2020); their
masked mean and maximum, plus the device's vector through a layer of its own, are decoded to one
number: log(seconds / roofline). One net serves every number of leaves. CDMPP (Hu et al., EuroSys
2024, section 5) instead flattens leaves and keeps a net for each number of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from .positions import encoded
from .sequence import Leaves

Array = NDArray[np.float32]
WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 128
EPSILON = 1e-5
MOST_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Transformer:
    """Weights by the name that training gives them, float32.

    ``feature_mean``, ``feature_scale``, ``device_mean``, ``device_scale``: of the inputs;
    ``label``: mean and scale of the output; ``uses_positions``: 1 or 0.
    """

    weights: Mapping[str, Array]

    def at(self, leaves: Leaves, devices: Array) -> Floats:
        """Log of seconds over the roofline, one for each program.

        Args:
            leaves: padded leaves.
            devices: float32 (programs, figures), a device vector for each program.
        """
        mean, scale = self.weights["label"]
        value = self._linear("decoder.2", self.last(leaves, devices))[:, 0] * scale + mean
        return np.asarray(value, dtype=np.float64)

    def last(self, leaves: Leaves, devices: Array) -> Array:
        """Inputs float32 (programs, WIDTH) of the last layer."""
        return _gelu(self._linear("decoder.0", self.hidden(leaves, devices)))

    def hidden(self, leaves: Leaves, devices: Array) -> Array:
        """Embeddings float32 (programs, WIDTH), before the decoder."""
        parts = [
            self._hidden(leaves.rows(slice(start, start + MOST_AT_ONCE)),
                         devices[start : start + MOST_AT_ONCE])
            for start in range(0, len(leaves.mask), MOST_AT_ONCE)
        ]  # fmt: skip
        return np.concatenate(parts) if parts else np.zeros((0, WIDTH), np.float32)

    def _hidden(self, leaves: Leaves, devices: Array) -> Array:
        w = self.weights
        x = self._linear("entry", (leaves.features - w["feature_mean"]) / w["feature_scale"])
        if w["uses_positions"][0]:
            x = x + encoded(leaves.positions, WIDTH)
        for layer in range(LAYERS):
            x = x + self._attention(f"layers.{layer}", x, leaves.mask)
            inner = _gelu(
                self._linear(f"layers.{layer}.up", self._norm(f"layers.{layer}.second", x))
            )
            x = x + self._linear(f"layers.{layer}.down", inner)
        pooled = self._linear("pooling", _pooled(self._norm("last", x), leaves.mask))
        on = _gelu(self._linear("device.0", (devices - w["device_mean"]) / w["device_scale"]))
        return pooled + self._linear("device.2", on)

    def _attention(self, name: str, x: Array, mask: NDArray[np.bool_]) -> Array:
        rows, leaves, _ = x.shape
        qkv = self._linear(f"{name}.qkv", self._norm(f"{name}.first", x))
        parts = qkv.reshape(rows, leaves, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].swapaxes(-1, -2) / np.float32(math.sqrt(WIDTH / HEADS))
        scores = np.where(mask[:, None, None, :], scores, np.float32(-1e9))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ parts[2]).transpose(0, 2, 1, 3).reshape(rows, leaves, WIDTH)
        return self._linear(f"{name}.out", mixed)

    def _linear(self, name: str, x: Array) -> Array:
        out: Array = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return out

    def _norm(self, name: str, x: Array) -> Array:
        mean = x.mean(axis=-1, keepdims=True)
        spread = np.sqrt(x.var(axis=-1, keepdims=True) + np.float32(EPSILON))
        out: Array = (x - mean) / spread * self.weights[f"{name}.weight"]
        return out + self.weights[f"{name}.bias"]


def read_transformer(path: Path) -> Transformer:
    """Read weights of an ``.npz`` file, executing nothing in it."""
    with np.load(path, allow_pickle=False) as arrays:
        return Transformer({name: arrays[name] for name in arrays.files})


def _pooled(x: Array, mask: NDArray[np.bool_]) -> Array:
    weight = mask[..., None]
    mean = (x * weight).sum(axis=1) / weight.sum(axis=1)
    most = np.where(weight, x, np.float32(-1e9)).max(axis=1)
    return np.concatenate([mean, most], axis=1)


def _gelu(x: Array) -> Array:
    """The tanh form (Hendrycks and Gimpel, 2016), in place of the error function."""
    cubic = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    out: Array = np.float32(0.5) * x * (1 + np.tanh(cubic))
    return out
