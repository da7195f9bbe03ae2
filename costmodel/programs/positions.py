"""Positions of leaves as sines and cosines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BASE = 10000.0


def encoded(positions: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Encode pre-order indices, of any shape, into ``width`` more values each.

    Columns 2i and 2i + 1 are sine and cosine of position / 10000^(2i / width) (Vaswani et al.,
    Attention Is All You Need, 2017, section 3.5).
    """
    rates = BASE ** (-np.arange(0, width, 2) / width)
    angles = positions[..., None] * rates
    out = np.zeros((*positions.shape, width), np.float32)
    out[..., 0::2], out[..., 1::2] = np.sin(angles), np.cos(angles[..., : width // 2])
    return out
