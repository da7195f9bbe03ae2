"""Compiled blocks without ranks: what they compute and keep, what they share, what is refused.

``aot_eager`` traces, differentiates and cuts as the compiler does, and runs library operations.
"""

from __future__ import annotations

import pytest
import torch
from checks.lowering_check import executor_stack
from generators.plan_cases import Sizes
from kernel_doubles.compiled_layers import with_mode
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from shardwright.costmodel.lowering.layer_lowering import lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.costmodel.techniques.compile import TECHNIQUE, fused_stack
from shardwright.executor.models.block import Block
from shardwright.executor.models.build import build_layer
from shardwright.executor.models.layer import LayerBuild, LayerModule
from shardwright.executor.models.sequence_split import unsplit_sequence
from shardwright.executor.models.tensor_parallel import NO_TENSOR_PARALLEL
from shardwright.executor.stage.options import BuildOptions, Compiler
from shardwright.executor.techniques import SHIPPED
from shardwright.executor.techniques import compile as technique
from shardwright.kernels.dispatch import Dispatcher
from shardwright.spec.errors import InputError
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.model_spec import BlockLayer
from shardwright.spec.strategy import LayerStrategy

SEQ_LEN, BATCH = 64, 2
SIZES = {
    "llama": Sizes(hidden=64, ffn=128, kv_heads=2),
    "gpt2": Sizes(hidden=64, ffn=128, gpt2=True),
    "qwen3": Sizes(hidden=64, ffn=128, kv_heads=2, qk_norm=True),
}
CPU = torch.device("cpu")
DEFAULT = with_mode(LayerStrategy(), "default")


def options(
    device: torch.device, flash: bool = True, compiler: Compiler = "aot_eager"
) -> BuildOptions:
    return BuildOptions(
        seed=0, device=device, flash=flash, prefetch=False, techniques=SHIPPED, compiler=compiler
    )


def block_layer(sizes: Sizes) -> BlockLayer:
    layer = sizes.model().layers()[1]
    assert isinstance(layer, BlockLayer)
    return layer


def block(
    sizes: Sizes, strategy: LayerStrategy, flash: bool = True, device: torch.device = CPU
) -> LayerModule:
    """A block with random parameters, the same ones each time."""
    layer = block_layer(sizes)
    build = LayerBuild(
        tp=NO_TENSOR_PARALLEL,
        kernels=Dispatcher(),
        recompute=strategy.recompute,
        flash=flash,
        seq_len=SEQ_LEN,
        sequence=unsplit_sequence(SEQ_LEN),
    )
    made = build_layer(layer, build)
    generator = torch.Generator().manual_seed(0)
    for spec in layer_parameters(layer, SEQ_LEN):
        slot, _, kind = spec.name.rpartition(".")
        value = torch.randn(spec.shape, generator=generator) * 0.1
        value += 1.0 if spec.initial == "ones" else 0.0
        made.slot(slot).register_parameter(kind, nn.Parameter(value.to(device)))
    kind_of: Compiler = "aot_eager" if device.type == "cpu" else "inductor"
    technique.compile_layer(made, strategy, options(device, flash, kind_of))
    return made


def activations(device: torch.device = CPU) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SEQ_LEN, BATCH, 64, generator=generator)
    return x.to(device).requires_grad_()


def kept_bytes(module: nn.Module, x: Tensor) -> tuple[Tensor, int]:
    """The module's result, and the bytes kept for the way back beside parameters and tables."""
    storages: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:
        storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        out: Tensor = module(x)
    resident = [*module.parameters(), *technique.rope.cached_tables()]
    own = {value.untyped_storage().data_ptr() for value in resident}
    return out, sum(size for place, size in storages.items() if place not in own)


def gradients(module: nn.Module, x: Tensor, out: Tensor) -> dict[str, Tensor]:
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.device))
    found = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert x.grad is not None
    return {"x": x.grad, **found}


@pytest.mark.parametrize("flash", [True, False], ids=["flash", "unfused"])
@pytest.mark.parametrize("family", SIZES)
def test_a_whole_block_is_the_eager_one_and_keeps_what_is_priced(family: str, flash: bool) -> None:
    eager, compiled = (block(SIZES[family], s, flash) for s in (LayerStrategy(), DEFAULT))
    inputs = activations(), activations()
    expected = eager(inputs[0])
    out, kept = kept_bytes(compiled, inputs[1])
    assert (out - expected).abs().max() <= 1e-6 * expected.abs().max()
    wanted, found = gradients(eager, inputs[0], expected), gradients(compiled, inputs[1], out)
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert (found[name] - value).abs().max() <= 5e-6 * value.abs().max(), name
    shape = LayerShape(
        strategy=DEFAULT,
        before=None,
        batch=BATCH,
        seq_len=SEQ_LEN,
        dtype="fp32",
        stack=fused_stack(executor_stack(flash), DEFAULT),
        prices=(TECHNIQUE,),
    )
    priced = lower_layer(block_layer(SIZES[family]), shape)
    activation = inputs[1].numel() * 4  # the input is kept, and the output is not
    assert kept == priced.forward.change_bytes
    assert priced.input_bytes == priced.output_bytes == activation


def test_blocks_of_one_form_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    technique.forget_compiled()
    traced = torch.compile(
        technique.compiled_regions.whole, fullgraph=True, dynamic=False, backend=counter
    )
    monkeypatch.setattr(technique, "_region", lambda name, mode, compiler: traced)
    for _ in range(10):
        x = activations()
        block(SIZES["llama"], DEFAULT)(x).sum().backward()
    assert counter.frame_count == 1
    block(SIZES["qwen3"], DEFAULT)(activations())
    assert counter.frame_count == 2


def test_weights_are_arguments_that_stay_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs read parameters where they are: torch must know which inputs never move."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._guards import TracingContext

    seen: list[int] = []

    def look(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None and not seen:
            seen.extend(context.fw_metadata.static_input_indices)
        return graph

    technique.forget_compiled()
    backend = aot_autograd(fw_compiler=look, bw_compiler=look)
    traced = torch.compile(
        technique.compiled_regions.whole, fullgraph=True, dynamic=False, backend=backend
    )
    monkeypatch.setattr(technique, "_region", lambda name, mode, compiler: traced)
    made = block(SIZES["llama"], DEFAULT)
    made(activations())
    assert len(seen) == len(list(made.parameters()))


def test_what_a_device_cannot_do_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = with_mode(LayerStrategy(), "cuda_graph")
    with pytest.raises(InputError, match="CUDA graphs need a CUDA device"):
        block(SIZES["llama"], graph)
    monkeypatch.setenv("CXX", "no-such-compiler")
    made = block(SIZES["llama"], LayerStrategy())
    with pytest.raises(InputError, match="no C"):
        technique.compile_layer(made, DEFAULT, options(CPU, True, "inductor"))
    assert isinstance(made, Block)
    assert made.body is Block._run
    with pytest.raises(InputError, match="compiled blocks only"):
        technique.compile_layer(nn.Module(), DEFAULT, options(CPU))  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "cuda_graph"])
def test_compiled_blocks_on_a_device(mode: str) -> None:
    """Three steps of two micro-batches each, both forward before either goes backward."""
    device = torch.device("cuda")
    chosen = with_mode(LayerStrategy(), mode)
    eager, compiled = (
        [block(SIZES["llama"], s, flash=False, device=device) for _ in range(3)]
        for s in (LayerStrategy(), chosen)
    )
    for step in range(4):
        found = []
        for blocks, strategy in ((eager, LayerStrategy()), (compiled, chosen)):
            technique.begin_step((strategy,))
            inputs = [(activations(device) * (step + n + 1)).detach() for n in range(2)]
            outs = [value.requires_grad_() for value in inputs]
            for each in blocks:
                outs = [each(value) for value in outs]
            for out in outs:
                out.square().sum().backward()
            parameters = [p for each in blocks for p in each.parameters()]
            found.append([p.grad.clone() for p in parameters if p.grad is not None])
            for p in parameters:
                p.grad = None
        assert len(found[0]) == len(found[1]) == sum(1 for b in eager for _ in b.parameters())
        for wanted, got in zip(*found, strict=True):
            assert (got - wanted).abs().max() <= 1e-4 * wanted.abs().max()


@pytest.mark.gpu
def test_a_graph_launches_less() -> None:
    """After it was recorded, a pass is one replay: few launches reach the driver."""
    device = torch.device("cuda")
    made = block(SIZES["llama"], with_mode(LayerStrategy(), "cuda_graph"), False, device)
    strategies = (with_mode(LayerStrategy(), "cuda_graph"),)

    def step() -> None:
        technique.begin_step(strategies)
        made(activations(device)).sum().backward()
        for p in made.parameters():
            p.grad = None

    for _ in range(4):
        step()
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as trace:
        step()
    names = [event.name for event in trace.events()]
    assert sum(name == "cudaGraphLaunch" for name in names) == 2
