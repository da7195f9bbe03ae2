"""Number formats: bytes of tensors, and the narrow formats of matrix products.

A narrow format holds scaled numbers in blocks that share a scale. The names tell the scaling:

============  ========================  ======================================================
fp8_tensor    one scale a tensor        Micikevicius et al., arXiv:2209.05433; Transformer Engine
fp8_block     fp32 scale for 1 x 128    DeepSeek-V3, arXiv:2412.19437, section 3.3.2 (weights
                                        128 x 128)
mxfp8         8-bit scale for 1 x 32    OCP Microscaling Formats 1.0, 2023; arXiv:2506.08027
nvfp4         8-bit scale for 1 x 16    arXiv:2509.25149, section 2 (weights 16 x 16)
============  ========================  ======================================================

With fp8_tensor forward operands are e4m3 and gradients e5m2 (hybrid); the others use one format
for both. In narrow formats run the products of linear layers in blocks, experts included; core
attention, routers, norms, embedding and head do not (Transformer Engine and Megatron Core,
Low-Precision Training Guide; DeepSeek-V3, section 3.3.1).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Dtype = Literal["fp32", "bf16", "fp16"]
MatmulFormat = Literal["fp8_tensor", "fp8_block", "mxfp8", "nvfp4"]
Scaling = Literal["current", "delayed"]

SHORTHANDS: dict[str, tuple[Dtype, MatmulFormat | None, Scaling]] = {
    "fp32": ("fp32", None, "current"),
    "bf16": ("bf16", None, "current"),
    "fp16": ("fp16", None, "current"),
    "fp8": ("bf16", "fp8_tensor", "current"),
    "fp8-delayed": ("bf16", "fp8_tensor", "delayed"),
    "fp8-block": ("bf16", "fp8_block", "current"),
    "mxfp8": ("bf16", "mxfp8", "current"),
    "nvfp4": ("bf16", "nvfp4", "current"),
}
"""``--dtype`` to parameter format, format of linear layers' products, and scaling."""

USUAL_STATES: Dtype = "fp32"
"""Format of gradients, master weights and moments where nothing else is said."""
STATE_ROLES: dict[str, tuple[str, ...]] = {
    "grad_dtype": ("gradient", "communication"),
    "communication_dtype": ("communication",),
    "master_dtype": ("master",),
    "moment_dtype": ("moments",),
}
"""Flags of states' formats, and the roles in a dtype record that each sets."""

DTYPE_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
ELEMENT_BYTES: dict[str, int] = {**DTYPE_BYTES, "int64": 8, "bool": 1, "int8": 1}
GROUP = 128
"""Elements for which a narrow format gives its bytes: a multiple of every block."""


class NarrowFormat(NamedTuple):
    """One narrow format.

    ``rate``: name of the device's peak rate. ``group_bytes``: bytes of 128 elements with their
    scales; ``weight_group_bytes``: the same for weights, whose blocks may be larger.
    """

    rate: Literal["fp8", "nvfp4"]
    group_bytes: int
    weight_group_bytes: int


NARROW: dict[str, NarrowFormat] = {
    "fp8_tensor": NarrowFormat("fp8", 128, 128),
    "fp8_block": NarrowFormat("fp8", 132, 128),
    "mxfp8": NarrowFormat("fp8", 132, 132),
    "nvfp4": NarrowFormat("nvfp4", 72, 72),
}


def tensor_bytes(elements: int, dtype: str) -> int:
    """Bytes of a tensor, scales of a narrow format included."""
    element_bytes = ELEMENT_BYTES.get(dtype)
    if element_bytes is not None:
        return elements * element_bytes
    return -(-elements * NARROW[dtype].group_bytes // GROUP)


def weight_bytes(elements: int, dtype: str) -> int:
    """Bytes of a weight; unlike :func:`tensor_bytes`, blocks may span rows too."""
    narrow = NARROW.get(dtype)
    if narrow is None:
        return tensor_bytes(elements, dtype)
    return -(-elements * narrow.weight_group_bytes // GROUP)


def rate_name(dtype: str) -> str:
    """Name of the device's peak rate for products of ``dtype`` operands."""
    return NARROW[dtype].rate if dtype in NARROW else dtype
