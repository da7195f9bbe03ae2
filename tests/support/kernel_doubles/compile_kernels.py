"""Compiles our own Triton kernels for devices that need not be here; writes what came out.

Run as a program of its own, without Triton's interpreter: ``compile_kernels.py CAPABILITY…``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from shardwright.kernels.dense import signalled_matmul_triton as signalled
from shardwright.kernels.moe import token_permutation_triton as experts
from shardwright.kernels.quantization import block_quantize_triton as blocks
from shardwright.kernels.token_ranges import copy_triton as ranges

INT, LONG = "i32", "i64"
Case = tuple[Any, dict[str, str], dict[str, Any]]


def block_cases() -> Iterator[Case]:
    """Encoding and decoding of 4 and 8 bits, plain and with everything on."""
    for bits, everything in ((4, True), (8, False)):
        packed = "*u8" if bits == 4 else "*i8"
        sizes = {"width": INT, "blocks": INT, "row_blocks": INT}
        common = {"BLOCK": 96, "PADDED": 128, "ROWS": 32, "BITS": bits, "HADAMARD": everything}
        given = {"x": "*bf16", "packed": packed, "scales": "*fp32", **sizes}
        levels = {"LEVELS": 7 if bits == 4 else 127, "SMALLEST": 1.17e-38}
        encode = {**common, **levels, "CHANCE": everything}
        yield blocks._encode, {**given, "seed": INT, "offset": LONG}, encode
        given = {"packed": packed, "scales": "*fp32", "out": "*bf16", **sizes}
        given |= {"peers": INT, "peer_bytes": INT}
        yield blocks._decode, given, {**common, "ADD": everything}


def token_cases() -> Iterator[Case]:
    """Tokens to experts and back, and ranges of tokens."""
    strides = {"width": INT, "row_stride": INT, "column_stride": INT}
    given = {"x": "*i16", "order": "*i64", "out": "*i16", **strides}
    yield experts._permute, given, {"TOPK": 8, "COLUMNS": 2048}
    given = {"rows": "*bf16", "slots": "*i64", "weights": "*fp32", "out": "*bf16", **strides}
    constants = {"TOPK": 8, "COLUMNS": 1024, "WEIGHTED": True, "SUM": tl.float32}
    yield experts._unpermute, given, constants
    given = dict.fromkeys(("grad", "rows", "weights", "grad_rows", "grad_weights"), "*bf16")
    given |= {"slots": "*i64", "order": "*i64"} | dict.fromkeys(("count", "per_program"), INT)
    given |= {"grad_row_stride": INT, "grad_column_stride": INT, **strides}
    yield experts._unpermute_backward, given, {"TOPK": 8, "COLUMNS": 2048, "SUM": tl.float32}
    given = {"source": "*i16", "target": "*i16", "ends": "*i64", "shifts": "*i64"}
    names = ("count", "total", "width", "source_row", "source_column", "target_row")
    given |= dict.fromkeys((*names, "target_column"), INT)
    for scatter in (False, True):
        constants = {"STEPS": 5, "ROWS": 4, "COLUMNS": 1024, "SCATTER": scatter}
        yield ranges._copy, given, constants
    given = {"rows": "*bf16", "target": "*bf16"} | dict.fromkeys(
        ("starts", "ends", "shifts"), "*i64"
    )
    given |= {"count": INT, "tokens": INT, **strides}
    yield ranges._sum, given, {"ROWS": 4, "COLUMNS": 1024, "SUM": tl.float32}


def product_cases() -> Iterator[Case]:
    """Products that wait for their rows."""
    given = {"x": "*bf16", "weight": "*bf16", "out": "*bf16", "signals": "*i32"}
    given |= dict.fromkeys(("rows", "n", "k", "shards", "rank"), INT)
    constants = {"M": 128, "N": 128, "K": 64, "PRECISION": "ieee", "WIDE": False}
    yield signalled._signalled, given, constants


def compiled(case: Case, capability: int) -> dict[str, Any]:
    """Name and bytes of the machine code."""
    function, given, constants = case
    signature = {**given, **dict.fromkeys(constants, "constexpr")}
    ordered = {name: signature[name] for name in function.arg_names}
    places = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(function, ordered, places)
    found = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    return {"name": function.fn.__name__, "on": capability, "bytes": len(found.asm["cubin"])}


if __name__ == "__main__":
    cases = [*block_cases(), *token_cases(), *product_cases()]
    found = [compiled(case, int(on)) for on in sys.argv[1:] for case in cases]
    sys.stdout.write(json.dumps(found) + "\n")
