"""Triton's interpreter, which runs fused kernels on cores: import this before they run.

``TRITON_INTERPRET=1`` must be set before anything loads triton; tests/conftest.py does it.
"""

from __future__ import annotations

import gc
import os

import torch


def take_floats_as_scalars() -> None:
    """Hand floats to interpreted kernels as what compiled ones get: scalars of float32.

    The interpreter (triton 3.9) passes them as Python numbers, which have no ``.to``.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    plain = interpreter._implicit_cvt

    def convert(value: object) -> object:
        if isinstance(value, float):
            data = interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32)
            return tl.core.tensor(data, tl.float32)
        return plain(value)

    interpreter._implicit_cvt = convert


def convert_bfloat16() -> None:
    """Convert to and from bfloat16 as every device does.

    The interpreter (triton 3.9) cuts float32 off, and takes the bits for the number in float64.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    plain = interpreter.InterpreterBuilder.cast_impl

    def cast(self: object, source: object, to: object) -> object:
        before, after = source.dtype.scalar, to.scalar
        if after == tl.bfloat16 and before in (tl.float32, tl.float64):
            data = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16()
            bits = data.view(torch.int16).numpy().view(np.uint16).reshape(source.data.shape)
            return interpreter.TensorHandle(bits, tl.bfloat16)
        if before == tl.bfloat16 and after == tl.float64:
            source = plain(self, source, tl.float32)
        return plain(self, source, to)

    interpreter.InterpreterBuilder.cast_impl = cast


def replace_device_functions() -> None:
    """Give the library's kernels the language's own functions for those of CUDA's libdevice.

    The interpreter has no libdevice: its functions give nothing back there.
    """
    from kernel_doubles import device_functions
    from liger_kernel.ops import geglu, rms_norm

    rms_norm.rsqrt = device_functions.rsqrt
    geglu.tanh = device_functions.tanh


def let_operands_go() -> None:
    """Free what a launch leaves in reference cycles, its operands among it, at once."""
    from triton.runtime import interpreter

    launch = interpreter.GridExecutor.__call__

    def call(self: object, *operands: object, **options: object) -> None:
        launch(self, *operands, **options)
        gc.collect(0)

    interpreter.GridExecutor.__call__ = call


if os.environ.get("TRITON_INTERPRET") == "1":
    take_floats_as_scalars()
    let_operands_go()
    convert_bfloat16()
    replace_device_functions()
