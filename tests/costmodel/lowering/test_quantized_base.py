"""Frozen weights in 4 and 8 bits: bytes, gathers, dequantization, and what refuses them."""

from __future__ import annotations

from functools import cache

import pytest
from generators.catalogue_problems import problem

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.workload import trainable_of
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.datasets.models.load import load_model
from shardwright.planner.solve.problem import Problem
from shardwright.spec.errors import InputError
from shardwright.spec.model.layer_parameters import ParameterSpec, layer_parameters
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.report.work_items import Collective, Kernel
from shardwright.spec.rules.plan_rules import unsupported_run
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.base_formats import packed_bytes, scale_bytes

PARAMETERS = 8_030_261_248
TABLES = 2 * 128256 * 4096
STACKS = ("shardwright", "megatron", "deepspeed", "transformers")


def asked(
    base: str, stack: str = "transformers", cluster: str = "1x8xA100-80GB", **given: object
) -> Problem:
    trainable = f"lora:rank=16,base_dtype={base}"
    inputs: dict[str, object] = {"dtype": "bf16", "stack": stack, "trainable": trainable, **given}
    return problem("llama-3-8b", cluster, 8, 1024, **inputs)


@cache
def simulated(base: str, stack: str = "transformers", **flags: object) -> Simulation:
    found = asked(base, stack)
    plan, _ = uniform_plan(found, UniformStrategy(**flags))  # type: ignore[arg-type]
    simulation = Simulator.for_plan(plan, found.machine, found.stack).run(plan)
    assert simulation is not None
    return simulation


def linears() -> list[ParameterSpec]:
    """The linear layers of one block."""
    layer = next(x for x in load_model("llama-3-8b")[0].layers() if isinstance(x, BlockLayer))
    return [spec for spec in layer_parameters(layer) if len(spec.shape) == 2]


def test_a_weight_takes_4_127_or_8_bits() -> None:
    elements = 4096 * 14336
    nf4 = packed_bytes(elements, "nf4") + scale_bytes(4096, 14336, "nf4")
    assert nf4 == elements // 2 + elements // 64 + 4 * elements // (64 * 256) + 4
    assert 8 * nf4 / elements == pytest.approx(4.127, abs=5e-4)
    assert packed_bytes(elements, "int8") + scale_bytes(4096, 14336, "int8") == elements + 4 * 4096
    assert scale_bytes(1, 65, "nf4") == 2 + 4 + 4


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(("base", "gigabytes"), [("nf4", 5.70), ("int8", 9.09), ("bf16", 16.06)])
def test_linear_layers_shrink_and_tables_and_norms_do_not(
    stack: str, base: str, gigabytes: float
) -> None:
    """Llama-3-8B in nf4 with double quantization: 3.6 GB of blocks, 2.1 GB of tables."""
    run = simulated(base, stack)
    units = [e.unit for e in run.chunks[0][0].layers if e.unit is not None]
    stored = sum(unit.parameter_bytes for unit in units)
    rank16 = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    own = 2 if stack in ("megatron", "deepspeed") else 4
    assert (stored - own * rank16) / 1e9 == pytest.approx(gigabytes, abs=0.01)
    if base != "bf16":
        linear = sum(
            packed_bytes(s.elements, base) + scale_bytes(*s.shape, base)  # type: ignore[arg-type]
            for s in linears()
        )
        norms = PARAMETERS - TABLES - 32 * sum(s.elements for s in linears())
        assert stored == 32 * linear + 2 * (TABLES + norms) + own * rank16


@pytest.mark.parametrize("base", ["nf4", "int8"])
def test_weights_are_dequantized_before_each_product(base: str) -> None:
    run, plain = simulated(base), simulated("bf16")
    layers = run.chunks[0][0].layers
    block = layers[1].lowered
    for direction in (block.forward, block.backward):
        kernels = [k for k in direction.kernels() if isinstance(k, Kernel)]
        found = [k for k in kernels if k.op == "dequantize"]
        assert sorted(k.shape[0] for k in found) == sorted(s.elements for s in linears())
        stored = {s.elements: packed_bytes(s.elements, base) for s in linears()}  # type: ignore[arg-type]
        assert all(stored[k.shape[0]] < k.traffic_bytes - 2 * k.shape[0] for k in found)
        assert {k.term for k in found} == {"elementwise"}
    other = plain.chunks[0][0].layers[1].lowered
    assert block.forward.change_bytes == other.forward.change_bytes
    assert other.forward.peak_bytes < block.forward.peak_bytes
    assert run.step_time_s > plain.step_time_s
    for end in (layers[0], layers[-1]):
        kernels = [*end.lowered.forward.kernels(), *end.lowered.backward.kernels()]
        assert "dequantize" not in {k.op for k in kernels}


@pytest.mark.parametrize("stack", ["transformers", "deepspeed"])
@pytest.mark.parametrize("shard", ["zero3", "hpz:2", "hsdp:4"])
def test_shards_are_gathered_packed_beside_whole_scales(stack: str, shard: str) -> None:
    run = simulated("nf4", stack, shard=shard)
    unit = run.chunks[0][0].layers[1].unit
    assert unit is not None
    packed = sum(packed_bytes(s.elements, "nf4") for s in linears())
    sent = [i for i in unit.gather.forward if isinstance(i, Collective)]
    assert packed in [i.payload_bytes for i in sent]
    degree = 4 if shard == "hsdp:4" else 8
    scales = sum(scale_bytes(*s.shape, "nf4") for s in linears())  # type: ignore[call-arg]
    pieces = packed // degree + (packed // 2 if shard == "hpz:2" else 0)
    rest = unit.parameter_bytes - pieces - scales
    assert 0 < rest < 0.03 * packed


def test_experts_are_quantized_and_routers_are_not() -> None:
    model = "mixtral-8x7b"
    given: dict[str, object] = {"dtype": "bf16", "trainable": "lora:base_dtype=int8"}
    found = problem(model, "1x8xA100-80GB", 8, 1024, **given)
    plan, _ = uniform_plan(found, UniformStrategy())
    simulation = Simulator.for_plan(plan, found.machine, found.stack).run(plan)
    assert simulation is not None
    block = simulation.chunks[0][0].layers[1].lowered.forward
    sizes = [k.shape[0] for k in block.kernels() if k.op == "dequantize"]
    assert sizes.count(8 * 4096 * 14336) == 3
    assert 8 * 4096 not in sizes


def test_a_run_and_narrow_products_refuse_it_by_name() -> None:
    reason = unsupported_run(LayerStrategy(), asked("nf4").workload)
    assert reason == "frozen weights in nf4 are planned but not run yet; use bf16"
    with pytest.raises(InputError, match="base_dtype nf4 beside products in fp8_tensor"):
        asked("nf4", cluster="1x8xH100-80GB", dtype="fp8")
    model = load_model("llama-3-8b")[0]
    with pytest.raises(InputError, match=r"got nf5.*nearest: nf4"):
        trainable_of("lora:base_dtype=nf5", model)
    found, _ = trainable_of("lora:base_dtype=int8", model)
    assert found is not None
    assert found.base_dtype == found.quantized_base == "int8"
