"""Products in narrow formats: what they cost, keep and leave alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.catalogue_problems import problem
from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.costmodel.kernel_latency.roofline import kernel_seconds
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.symbolic.tape import Tape
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.catalogue.device_formats import require_format
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import Kernel
from shardwright.spec.workload.number_formats import NARROW, tensor_bytes
from shardwright.spec.workload.workload import SHORTHANDS, DtypeRecord

SIDES = st.sampled_from([2048, 3072, 4096, 5120, 8192, 14336, 28672])
NARROW_NAMES = ("fp8", "fp8-delayed", "fp8-block", "mxfp8", "nvfp4")


def simulate(dtype: str, cluster: str = "1x8xB200", **flags: object) -> Simulation:
    name = str(flags.pop("stack", "megatron"))
    found = problem("llama-3-8b", cluster, 64, 4096, dtype=dtype, stack=name)
    plan, _ = uniform_plan(found, UniformStrategy(micro_batch=1, **flags))  # type: ignore[arg-type]
    simulation = Simulator.for_plan(plan, found.machine, found.stack).run(plan)
    assert simulation is not None
    return simulation


def kernels(simulation: Simulation) -> list[Kernel]:
    layers = [e for chunk in simulation.chunks[0] for e in chunk.layers]
    passes = [p for e in layers for p in (e.lowered.forward, e.lowered.backward)]
    return [k for p in passes for k in p.kernels()]


@pytest.mark.parametrize(
    ("name", "bytes_of_4096"),
    [
        ("fp8_tensor", 4096),
        ("fp8_block", 4096 + 32 * 4),
        ("mxfp8", 4096 + 128),
        ("nvfp4", 2048 + 256),
    ],
)
def test_bytes_are_those_of_the_elements_and_their_scales(name: str, bytes_of_4096: int) -> None:
    assert tensor_bytes(4096, name) == bytes_of_4096
    assert Tape().new((64, 64), name).size_bytes == bytes_of_4096


@given(SIDES, SIDES, SIDES)
def test_a_large_narrow_product_is_never_slower(m: int, k: int, n: int) -> None:
    for name in ("H100", "B200"):
        found, seconds = device(name), {}
        for dtype in ("bf16", "fp8"):
            tape = Tape()
            tape.product(m, k, n, "bf16", operands=None if dtype == "bf16" else "fp8_block")
            work = tape.entries[0].work
            assert isinstance(work, Kernel)
            assert work.dtype == dtype
            seconds[dtype] = kernel_seconds(work, found)
        assert seconds["fp8"] <= seconds["bf16"]


@pytest.mark.parametrize("dtype", NARROW_NAMES)
def test_linear_layers_of_blocks_alone_are_narrow(dtype: str) -> None:
    found = simulate(dtype)
    rate = NARROW[str(DtypeRecord.from_shorthand(dtype).matmul)].rate
    products = [k for k in kernels(found) if k.op == "matmul"]
    vocabulary = [k for k in products if 128256 in k.shape]
    assert len(vocabulary) == 3
    assert {k.dtype for k in vocabulary} == {"bf16"}
    assert {k.dtype for k in products if k not in vocabulary} == {rate}
    attention = [k for k in kernels(found) if k.op.startswith("flash_attention")]
    assert {k.dtype for k in attention} == {"bf16"}
    assert sum(k.flops for k in kernels(found)) == sum(k.flops for k in kernels(simulate("bf16")))


@pytest.mark.parametrize("dtype", NARROW_NAMES)
def test_the_narrow_copy_is_all_that_a_linear_layer_keeps(dtype: str) -> None:
    """Inputs of query/key/value, output, gate/up and down: 4096, 4096, 4096 and 14336 wide."""
    plain, narrow = simulate("bf16"), simulate(dtype)
    block = [s.chunks[0][0].layers[5].lowered.forward.change_bytes for s in (plain, narrow)]
    elements = 4096 * (3 * 4096 + 14336)
    name = str(DtypeRecord.from_shorthand(dtype).matmul)
    # the attention output is kept by attention itself too, in bf16
    kept = 2 * (elements - 4096 * 4096) - tensor_bytes(elements, name)
    assert block[0] - block[1] == pytest.approx(kept, rel=0.01)


def test_delayed_scaling_saves_the_pass_that_finds_the_scale() -> None:
    current, delayed = simulate("fp8"), simulate("fp8-delayed")
    passes = [sum(k.op == "amax" for k in kernels(found)) for found in (current, delayed)]
    assert passes[1] == 1  # of the cross-entropy
    assert passes[0] > 32 * 7
    assert delayed.step_time_s < current.step_time_s < simulate("bf16").step_time_s


def test_a_stack_that_keeps_quantised_weights_holds_two_more_bytes_each() -> None:
    plain, narrow = simulate("bf16"), simulate("fp8")
    block_weights = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    more = narrow.memory[0].by["parameters"] - plain.memory[0].by["parameters"]
    assert more == 2 * block_weights
    titan = simulate("fp8", stack="torchtitan", shard="zero3")
    weights = [k for k in kernels(titan) if k.op == "quantize" and 4096 * 14336 in k.shape]
    assert weights  # one for each use


def test_ranks_gather_narrow_activations() -> None:
    plain, narrow = (simulate(d, tp=2, sp="megatron") for d in ("bf16", "fp8"))
    sizes = []
    for found in (plain, narrow):
        forward = found.chunks[0][0].layers[5].lowered.forward
        sizes.append([c.payload_bytes for c in forward.collectives() if c.kind == "all_gather"])
    assert [2 * size for size in sizes[1]] == sizes[0]


def test_parameters_gathered_narrow_move_fewer_bytes() -> None:
    found = problem("llama-3-8b", "1x8xH100", 64, 4096, dtype="fp8", stack="torchtitan")
    plan, _ = uniform_plan(found, UniformStrategy(shard="zero3", recompute="full"))
    sizes = []
    for gathers in (False, True):
        chosen = replace(found.stack, narrow_gather=gathers)
        simulation = Simulator.for_plan(plan, found.machine, chosen).run(plan)
        assert simulation is not None
        unit = simulation.chunks[0][0].layers[5].unit
        assert unit is not None
        sizes.append(sum(i.payload_bytes for i in unit.gather.forward if not isinstance(i, Kernel)))
    assert 0.5 < sizes[1] / sizes[0] < 0.51


def test_parameters_gathered_in_fp8_have_no_copy_of_16_bits() -> None:
    found = problem("llama-3-8b", "1x8xH100", 64, 4096, dtype="fp8", stack="megatron")
    plan, _ = uniform_plan(found, UniformStrategy(shard="zero1"))
    stored = []
    for gathers in (False, True):
        chosen = replace(found.stack, narrow_gather=gathers)
        simulation = Simulator.for_plan(plan, found.machine, chosen).run(plan)
        assert simulation is not None
        unit = simulation.chunks[0][0].layers[5].unit
        assert unit is not None
        stored.append(unit.parameter_bytes)
    assert 1.99 < stored[0] / stored[1] < 2  # norms stay in 16 bits


LLAMA_BLOCK = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) + 2 * 4096
"""Parameters of a block of Llama-3-8B."""


@pytest.mark.parametrize(("base", "kept"), [("", 2), (",base_dtype=fp32", 6)])
def test_frozen_parameters_in_fp8_have_no_copy_of_16_bits(base: str, kept: int) -> None:
    """Two narrow copies of a byte an element alone, unless a format was asked for."""
    adapters = "lora:rank=16,alpha=32,targets=query" + base
    found = problem(
        "llama-3-8b", "1x8xH100", 64, 4096, dtype="fp8", stack="megatron", trainable=adapters
    )
    plan, _ = uniform_plan(found, UniformStrategy())
    chosen = replace(found.stack, narrow_gather=True)
    simulation = Simulator.for_plan(plan, found.machine, chosen).run(plan)
    assert simulation is not None
    block = simulation.chunks[0][0].layers[5]
    assert block.unit is not None
    assert kept < block.unit.parameter_bytes / LLAMA_BLOCK < 1.01 * kept


@pytest.mark.parametrize(
    ("name", "matmul", "nearest"),
    [("A100", "fp8_tensor", "bf16"), ("V100", "fp8_block", "fp16"), ("H100", "nvfp4", "fp8")],
)
def test_a_device_without_the_units_is_refused(name: str, matmul: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f"nearest: {nearest}"):
        require_format(device(name), matmul, "--dtype")


def test_shorthands_name_what_they_make() -> None:
    for name in SHORTHANDS:
        assert DtypeRecord.from_shorthand(name).shorthand == name


def test_stacks_say_how_they_quantise_weights() -> None:
    assert stack("megatron").narrow_weights == "cached"
    assert stack("torchtitan").narrow_weights == "each_use"
