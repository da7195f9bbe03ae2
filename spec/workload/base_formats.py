"""Formats of frozen weights, and bytes of those in 4 or 8 bits.

======  =============================================  ===========================================
nf4     4 bits in blocks of 64 with an 8-bit scale     Dettmers et al., QLoRA, arXiv:2305.14314,
        each; scales in blocks of 256 with an fp32     section 3 (double quantization);
        scale each, and an fp32 offset a tensor:       bitsandbytes functional.py: quantize_4bit
        4.127 bits a weight                            with compress_statistics
int8    8 bits, an fp32 scale a row                    Dettmers et al., LLM.int8(),
                                                       arXiv:2208.07339, section 2.1; bitsandbytes
                                                       nn/modules.py: Int8Params, SCB
======  =============================================  ===========================================

Only linear layers of blocks have them: embeddings, norms, biases, routers and the head keep the
parameters' format (transformers quantizers: modules_to_not_convert).
"""

from __future__ import annotations

from typing import Literal, TypeGuard, get_args

from .number_formats import DTYPE_BYTES

QuantizedBase = Literal["nf4", "int8"]
BaseFormat = Literal["fp32", "bf16", "fp16", "nf4", "int8"]
BASE_FORMATS: tuple[str, ...] = get_args(BaseFormat)

BITS: dict[QuantizedBase, int] = {"nf4": 4, "int8": 8}
NF4_BLOCK = 64
SCALE_BLOCK = 256
SCALE_BYTES = DTYPE_BYTES["fp32"]


def is_quantized(name: str | None) -> TypeGuard[QuantizedBase]:
    """True for a format of 4 or 8 bits."""
    return name in BITS


def packed_bytes(elements: int, base: QuantizedBase) -> int:
    """Bytes of a weight's elements, without their scales."""
    return -(-elements * BITS[base] // 8)


def scale_bytes(rows: int, columns: int, base: QuantizedBase) -> int:
    """Bytes of the scales of a (rows, columns) weight."""
    if base == "int8":
        return rows * SCALE_BYTES
    blocks = -(-rows * columns // NF4_BLOCK)
    return blocks + (-(-blocks // SCALE_BLOCK) + 1) * SCALE_BYTES
