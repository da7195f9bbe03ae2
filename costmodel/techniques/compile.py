"""compile: the price of fused kernels and replayed graphs.

Paper: Ansel et al., PyTorch 2 (ASPLOS 2024), sections 3 and 4.

The idea: operations between matrix products move the same activations repeatedly, each at a host
launch. The compiler writes one kernel per chain of elementwise operations and reductions. A CUDA
graph replays a pass's launches as one.

Symbols: k kernels of a pass, eager (e) or fused (c); h host seconds of an eager launch, of one by
generated code (c), of a graph (g); r around a compiled region; d seconds of the device's kernels.

Cost: d falls with the bytes that fused kernels no longer move: norms, rotary turns, softmax and
activations are fused, and residual sums with the norm beside them, both ways. Exposed host time,
eager: max(0, k_e · h - d); default: max(0, k_c · h_c + r - d); cuda_graph: max(0, h_g - d). Parts
between collectives are regions of their own. Sums with gradients of earlier micro-batches stay
torch's, each an eager launch.

Takeaway: fusion pays wherever activations are large, graphs only where kernels are short.

Worked number: forward and backward of a Llama block in fp32 are 35 kernels instead of 80 eager
ones; beside the fused kernels of liger-kernel 8 % fewer bytes move.

Limits: dense decoder blocks. Matrix products and flash attention stay the library's. Kept for the
backward is what the compiler's cut keeps (checked byte by byte for Llama, Qwen3 and GPT-2 blocks).
Host seconds are assumed.
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.cluster.stack_spec import KernelFusion, StackSpec
from ...spec.recomputation import recomputes_block
from ...spec.report.work_items import ATTENTIONS, MATMULS, Kernel
from ...spec.strategy import LayerStrategy
from ...spec.techniques.compile import TECHNIQUE as VALUE
from ...spec.techniques.compile import compiles_whole, mode_of
from ..symbolic.lowered_pass import HostWork
from ..symbolic.tape import TapeEntry
from ..technique import TechniquePrice

LAUNCH_S = 3e-6
"""Host seconds of a launch by generated code. Assumed: half of an eager operation's 6 us, which has
a dispatcher and autograd in front of the same launch. Unmeasured."""
REGION_S = 30e-6
"""Host seconds around a compiled region, once each way: guards, and wrappers of AOTAutograd.
Assumed. Unmeasured."""
GRAPH_S = 40e-6
"""Host seconds of replaying one CUDA graph through torch's graph trees. Assumed: guards and
wrappers as around a region, and 10 us for checks of inputs and the launch itself. Unmeasured."""
PARTS = 4
"""Regions of a block whose collectives or core attention stay eager: norm, positions (and
attention), activation, and the sum of the residual stream with the second norm."""


def fused_stack(stack: StackSpec, strategy: LayerStrategy) -> StackSpec:
    """The stack with a compiled layer's fusions of generated code."""
    if mode_of(strategy) is None:
        return stack
    whole, again = compiles_whole(strategy), strategy.recompute == "selective"
    fusion: KernelFusion = replace(
        stack.fusion,
        norm=True,
        rope=True,
        softmax=stack.fusion.softmax or not again,
        bias_activation=True,
        gated_activation=True,
        in_place=False,
        bias_residual=stack.fusion.bias_residual or whole,
        across_parts=True,
    )
    early = stack.recompute_stops_early and not whole  # one region runs to its end
    return replace(stack, fusion=fusion, recompute_stops_early=early)


def host_work(
    strategy: LayerStrategy, entries: tuple[TapeEntry, ...], additions: int, forward: bool
) -> HostWork | None:
    """A pass's host work; None if all kernels are eager launches.

    ``additions``: kernels among ``entries`` that add gradients to earlier micro-batches'.
    """
    mode = mode_of(strategy)
    if mode is None or not entries:
        return None
    kernels = [entry.work for entry in entries if isinstance(entry.work, Kernel)]
    if mode == "cuda_graph":
        return HostWork(additions, once_s=GRAPH_S)
    whole = compiles_whole(strategy)
    outside = 0 if whole else sum(kernel.op in _outside(strategy) for kernel in kernels)
    runs = 2 if recomputes_block(strategy.recompute) and not forward else 1
    regions = runs * (1 if whole else PARTS)
    eager = additions + outside
    return HostWork(eager, len(kernels) - eager, LAUNCH_S, regions * REGION_S)


def _outside(strategy: LayerStrategy) -> frozenset[str]:
    core = ATTENTIONS | MATMULS if strategy.recompute == "selective" else frozenset[str]()
    return core | {"matmul"}


TECHNIQUE = TechniquePrice(value=VALUE, at_least="products", stack=fused_stack, host_work=host_work)
