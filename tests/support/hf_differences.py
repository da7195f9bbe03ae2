"""Where the library's eager blocks save other bytes than the lowered layers, op by op.

Each difference picks saved storages by what made them and which module saved them, and says
what the lowered layer keeps in their place. What no difference picks must agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hf_trace import INPUT, Saved, Trace


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Saved storages that the lowered layer keeps in another size, or not at all.

    ``op`` and ``saved_in`` are patterns of the whole name. ``ours`` is the bytes that the
    lowering keeps for each byte that the library keeps; ``axes`` is the rank of the tensor.
    """

    op: str
    saved_in: str
    reason: str
    ours: float = 0.0
    dtype: str = ".*"
    axes: int | None = None

    def picks(self, item: Saved) -> bool:
        """Whether this difference is about a saved storage."""
        pairs = ((self.op, item.op), (self.saved_in, item.saved_in), (self.dtype, item.dtype))
        fits = self.axes is None or len(item.shape) == self.axes
        return fits and all(re.fullmatch(pattern, name) for pattern, name in pairs)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One difference as it was found in a trace: bytes on each side."""

    op: str
    reason: str
    library_bytes: int
    our_bytes: int


NORMS = r"(?!mixer\.|linear_attn\.).*norm\w*"
"""Norms around a block's parts; those inside scans are lowered operation by operation."""
DIFFERENCES = (
    Difference(
        op="add|_to_copy",
        saved_in=NORMS,
        axes=1,
        reason="the weight as the norm uses it, cast or with one added; ours reads the parameter",
    ),
    Difference(
        op="_to_copy",
        saved_in=NORMS,
        dtype="float32",
        ours=0.5,
        reason="the norm keeps its input cast to fp32; ours keeps it as it came and casts again",
    ),
    Difference(
        op="mul|_to_copy",
        saved_in=NORMS,
        reason="the norm keeps the normalised input for its weight's gradient; ours makes it again",
    ),
    Difference(
        op="native_layer_norm",
        saved_in=r".*(ln_\d|norm\w*|LayerNorm)",
        dtype="bfloat16",
        ours=2.0,
        reason="statistics of a 16-bit layer norm: 16-bit on a CPU; fp32 on a GPU and in ours",
    ),
    Difference(
        op="tanh|add|mul|pow",
        saved_in=r".*\.act",
        reason="GELU written out keeps every step; ours keeps its input",
    ),
    Difference(
        op="silu",
        saved_in=r".*mlp",
        reason="the gate after SiLU is kept for the product; ours makes it again from the gate",
    ),
    Difference(
        op=INPUT,
        saved_in=r".*(attn|attention)",
        reason="cosines and sines: one table for all layers, made before them; no layer's bytes",
    ),
    Difference(
        op="_softmax",
        saved_in=r".*(attn|attention)",
        dtype="float32",
        reason="softmax in fp32 keeps its result beside the 16-bit copy that the product reads",
    ),
)


def listed_differences(trace: Trace, dtype: str) -> tuple[list[Listed], list[Saved]]:
    """The differences of a trace, and the saved storages that none of them picks.

    Args:
        trace: of a block run in ``dtype``.
        dtype: ``fp32`` or ``bf16``: differences of casts are none in fp32.
    """
    rest = list(trace.saved)
    found = []
    for difference in _of_type(DIFFERENCES, dtype):
        picked = [item for item in rest if difference.picks(item)]
        if not picked:
            continue
        rest = [item for item in rest if not difference.picks(item)]
        total = sum(item.size_bytes for item in picked)
        found.append(
            Listed(
                op=", ".join(sorted({item.op for item in picked})),
                reason=difference.reason,
                library_bytes=total,
                our_bytes=round(total * difference.ours),
            )
        )
    return found, rest


def _of_type(differences: Iterable[Difference], dtype: str) -> Iterable[Difference]:
    """A tensor in the compute type is no copy that a cast made: fp32 has no such difference."""
    return (x for x in differences if not (dtype == "fp32" and x.dtype == "float32"))
