"""The run of compile: blocks given to torch.compile, with eager parts between.

A block on one rank is one region. Elsewhere collectives stay eager, so that messages match the
plan, as does recomputed core attention; the parts between are regions. Regions are traced whole
(``fullgraph``): what the compiler cannot take is an error, never an eager fallback. Weights are
arguments, so blocks of one form share code, and fully_shard gathers freely.

CUDA graphs are torch's graph trees, which hold leftovers of every micro-batch until told at the
next step's beginning that this one is over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...kernels.attention import rope
from ...kernels.fused import unusable
from ...spec.errors import InputError, NotBuiltError
from ...spec.model.dense_blocks import dense_parts
from ...spec.plan.plan import Plan
from ...spec.strategy import LayerStrategy
from ...spec.techniques.compile import NAME, CompileMode, compiles_whole, mode_of
from ..models import compiled_regions
from ..models.attention import angles_of
from ..models.block import Block
from ..models.layer import LayerModule, iter_slots, recomputed
from ..models.tensor_parallel import column_linear, row_linear
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun

if TYPE_CHECKING:
    from ..stage.options import BuildOptions, Compiler

CPU_COMPILERS = ("g++", "clang++")


def compile_layer(module: LayerModule, strategy: LayerStrategy, options: BuildOptions) -> None:
    """Compile a layer if its strategy says so; before sharding.

    Raises:
        InputError: the device cannot do it.
    """
    mode, device, compiler = mode_of(strategy), options.device, options.compiler
    if mode is None:
        return
    if reason := device_reason(mode, device, compiler):
        raise InputError("compile", mode, f"none on this device ({reason})", "none")
    if not isinstance(module, Block):
        raise InputError("compile", type(module).__name__, "compiled blocks only", "none")
    module.body = CompiledBlock(module, strategy, mode, options.flash, compiler)


def device_reason(mode: CompileMode, device: torch.device, compiler: Compiler) -> str | None:
    """Reason that a device cannot run compiled blocks; None if it can."""
    if mode == "cuda_graph" and device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    if compiler != "inductor":
        return "CUDA graphs need inductor" if mode == "cuda_graph" else None
    if device.type == "cuda":
        return unusable("triton")
    chosen = os.environ.get("CXX")
    names = (chosen,) if chosen else CPU_COMPILERS
    return (
        None
        if any(map(shutil.which, names))
        else "no C++ compiler, such as g++, to compile for cores with"
    )


def hides_bytes(plan: Plan, device: torch.device) -> bool:
    """True if generated code hides allocations from dispatch and the allocator."""
    return device.type == "cpu"


def begin_step(strategies: Iterable[LayerStrategy]) -> None:
    """Mark a new step for CUDA graphs: old tensors are dead."""
    if any(mode_of(strategy) == "cuda_graph" for strategy in strategies):
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


def forget_compiled() -> None:
    """Forget compiled regions, recompiled when needed."""
    if _region.cache_info().currsize:
        _region.cache_clear()
        torch.compiler.reset()


class CompileHooks(TechniqueHooks):
    """Step hooks of compiled layers."""

    def __init__(self, context: TechniqueContext) -> None:
        self._strategies = tuple(context.strategies.values())

    def begin_step(self) -> None:
        """Mark the last step's tensors as dead."""
        begin_step(self._strategies)

    def close(self) -> None:
        """Forget compiled regions."""
        forget_compiled()


@cache
def _region(name: str, mode: CompileMode, compiler: Compiler) -> Callable[..., Any]:
    torch_mode = "reduce-overhead" if mode == "cuda_graph" else None
    function: Callable[..., Any] = getattr(compiled_regions, name)
    return torch.compile(function, fullgraph=True, dynamic=False, backend=compiler, mode=torch_mode)


class CompiledBlock:
    """A block's forward in compiled regions.

    Args:
        flash: True if core attention is the flash kernel.

    Raises:
        NotBuiltError: an activation that has no form for a compiler.
    """

    def __init__(
        self,
        block: Block,
        strategy: LayerStrategy,
        mode: CompileMode,
        flash: bool,
        compiler: Compiler,
    ) -> None:
        attention, mlp = dense_parts(block.layer)
        if mlp.activation not in compiled_regions.ACTIVATIONS:
            raise NotBuiltError(f"compiling the activation {mlp.activation}")
        self.turns = angles_of(attention, block.seq_len) if attention.rotary else None
        self.whole = compiles_whole(strategy)
        self.recomputes_attention = strategy.recompute == "selective"
        self.region = partial(_region, mode=mode, compiler=compiler)
        self.form = compiled_regions.BlockForm(
            norm=block.layer.norm,
            eps=block.layer.norm_eps,
            head_dim=attention.head_dim,
            activation=mlp.activation,
            flash=flash,
        )

    def __call__(self, block: Block, x: Tensor) -> Tensor:
        """Run one block on activations (seq, batch, hidden)."""
        weights: compiled_regions.RegionWeights = {
            f"{name}.{kind}": value
            for name, slot in iter_slots(block)
            for kind, value in slot.named_parameters(recurse=False)
        }
        angles = None if self.turns is None else rope.angle_table(self.turns, x.dtype, x.device)
        if self.whole:
            out: Tensor = self.region("whole")(self.form, x, weights, angles)
            return out
        return self._in_parts(block, x, weights, angles)

    def _in_parts(
        self,
        block: Block,
        x: Tensor,
        weights: compiled_regions.RegionWeights,
        angles: compiled_regions.Angles,
    ) -> Tensor:
        def only(*names: str) -> compiled_regions.RegionWeights:
            """The weights that a region reads, so its guards see no others."""
            return {key: w for key, w in weights.items() if key.partition(".")[0] in names}

        first, second = "attention_norm", "mlp_norm"
        normal = self.region("normalized")(self.form, x, only(first), first)
        projected = self._projected(block, normal, ("query", "key", "value"))
        arguments = (self.form, *projected, only("query_norm", "key_norm"), angles)
        if self.recomputes_attention:
            attended = recomputed(block.attend, *self.region("positioned")(*arguments))
        else:
            attended = self.region("attend")(*arguments)
        added = self._row(block, attended, "output")
        x, normal = self.region("add_and_norm")(self.form, x, added, only(second), second)
        names = ("gate", "up") if self.form.activation == "swiglu" else ("up",)
        out = self.region("apply_activation")(self.form, *self._projected(block, normal, names))
        return x + self._row(block, out, "down")

    @staticmethod
    def _projected(block: Block, x: Tensor, names: tuple[str, ...]) -> tuple[Tensor, ...]:
        biases = [block.slot(name).bias for name in names]
        return column_linear(x, block.weights(*names), biases, block.tp)

    @staticmethod
    def _row(block: Block, x: Tensor, name: str) -> Tensor:
        slot = block.slot(name)
        return row_linear([x], [slot.weight], [slot.bias], block.tp)


TECHNIQUE = TechniqueRun(
    name=NAME, prepare=compile_layer, start=CompileHooks, hides_bytes=hides_bytes
)
