"""Adapters and frozen parts: what they no longer need."""

from __future__ import annotations

import pytest
from generators.catalogue_problems import problem

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.workload import trainable_of
from shardwright.costmodel.lowering.model_flops import flops_convention, model_flops_per_sample
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.datasets.models.load import load_model
from shardwright.planner.solve.problem import Problem
from shardwright.spec.errors import InputError
from shardwright.spec.model.layers import BlockLayer, EmbeddingLayer, HeadLayer, ProjectorLayer
from shardwright.spec.model.model_spec import LayerRun, ModelSpec, Tower, TowerEdge
from shardwright.spec.report.work_items import Kernel
from shardwright.spec.rules.plan_rules import unsupported_run
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.workload.training import Lora, layer_trainings

PARAMETERS = 6_738_415_616
STACKS = ("shardwright", "megatron", "torchtitan", "deepspeed")


def asked(trainable: str | None, **inputs: object) -> Problem:
    given: dict[str, object] = {"dtype": "bf16", "trainable": trainable, **inputs}
    return problem("llama-2-7b", "1x8xH200", 64, 4096, **given)


def simulate(found: Problem, **flags: object) -> Simulation:
    plan, _ = uniform_plan(found, UniformStrategy(**flags))  # type: ignore[arg-type]
    simulation = Simulator.for_plan(plan, found.machine, found.stack).run(plan)
    assert simulation is not None
    return simulation


def flops(simulation: Simulation) -> tuple[int, int]:
    layers = [e.lowered for e in simulation.chunks[0][0].layers]
    return sum(x.forward.flops for x in layers), sum(x.backward.flops for x in layers)


@pytest.mark.parametrize("stack", STACKS)
def test_frozen_weights_have_no_gradient_no_state_no_master_copy(stack: str) -> None:
    full, lora = (simulate(asked(t, stack=stack)) for t in (None, "lora:rank=16"))
    by, small = full.memory[0].by, lora.memory[0].by
    adapters = 32 * 2 * 16 * (4096 + 4096)
    assert small["optimizer"] <= 16 * adapters
    assert small["gradients"] <= 8 * adapters
    assert by["optimizer"] + by["gradients"] > 10 * PARAMETERS
    assert small["parameters"] == pytest.approx(2 * PARAMETERS, rel=0.02)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("shard", ["zero0", "zero1"])
def test_only_adapters_are_reduced(stack: str, shard: str) -> None:
    lora = simulate(asked("lora:rank=16", stack=stack), shard=shard)
    adapters = 32 * 2 * 16 * (4096 + 4096)
    units = [e.unit for e in lora.chunks[0][0].layers if e.unit is not None]
    reduced = sum(
        i.payload_bytes for u in units for i in u.reduce.fresh if not isinstance(i, Kernel)
    )
    assert 0 < reduced <= 2 * 4 * adapters


def test_products_are_two_thirds_of_full_training() -> None:
    """The gradient of the weight is a third of each product's FLOPs; attention keeps its own.

    With full training the head makes its gradients going forward, so both ways count together.
    """
    full, lora = simulate(asked(None)), simulate(asked("lora:rank=1"))
    linear = 2 * 4096 * (PARAMETERS - 32000 * 4096)
    assert sum(flops(lora)) == pytest.approx(sum(flops(full)) - linear, rel=2e-3)
    assert lora.step_time_s < full.step_time_s


def test_model_flops_follow_the_same_rule() -> None:
    full, lora = asked(None), asked("lora:rank=1")
    per_sample = [model_flops_per_sample(p.model, p.workload) for p in (full, lora)]
    linear = 2 * 4096 * (PARAMETERS - 32000 * 4096)
    assert per_sample[0] - per_sample[1] == pytest.approx(linear, rel=2e-3)
    assert "frozen weights" in flops_convention(lora.workload)
    assert "frozen" not in flops_convention(full.workload)


def test_a_frozen_layer_keeps_less() -> None:
    full, lora = simulate(asked(None)), simulate(asked("lora:rank=16,targets=query"))
    kept = [s.chunks[0][0].layers[5].lowered.forward.change_bytes for s in (full, lora)]
    assert kept[1] < kept[0]
    embedding = lora.chunks[0][0].layers[0].lowered
    assert embedding.backward.flops == 0
    assert embedding.backward.entries == ()


@pytest.mark.parametrize("rank", [8, 64])
def test_adapters_add_their_own_products(rank: int) -> None:
    lora = simulate(asked(f"lora:rank={rank},targets=query,down"))
    plain = simulate(asked("lora:rank=1,targets=query,down"))
    tokens, widths = 4096, 2 * 4096 + (4096 + 11008)
    more = 32 * 2 * tokens * (rank - 1) * widths
    assert flops(lora)[0] - flops(plain)[0] == more
    assert flops(lora)[1] - flops(plain)[1] == 2 * more


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("sp", ["none", "megatron"])
def test_adapters_split_with_their_weights(tp: int, sp: str) -> None:
    lora = simulate(asked("lora:rank=16,targets=query,output"), tp=tp, sp=sp)
    plain = simulate(asked("lora:rank=16,targets=query,output"))
    layer, whole = (s.chunks[0][0].layers[5].lowered for s in (lora, plain))
    small = 4096 * 16 * 2
    sums = [c for c in layer.forward.collectives() if c.payload_bytes == small]
    assert len(sums) == 1  # A x of the output projection, whose inputs are split
    back = [c for c in layer.backward.collectives() if c.payload_bytes == small]
    assert len(back) == 1  # its gradient for the query projection
    assert layer.forward.flops < whole.forward.flops / tp * 1.02


def towers(frozen: tuple[str, ...]) -> list[tuple[bool, bool]]:
    text = load_model("llama-2-7b")[0].towers[0]
    blocks = [run for run in text.layers if isinstance(run.layer, BlockLayer)]
    vision = Tower(name="vision", layers=(LayerRun(layer=blocks[0].layer, count=2),))
    bridge = Tower(
        name="bridge",
        layers=(LayerRun(layer=ProjectorLayer(hidden=4096, inner=0, out=4096), count=1),),
    )
    ends = [run for run in text.layers if isinstance(run.layer, (EmbeddingLayer, HeadLayer))]
    language = Tower(name="text", layers=(ends[0], LayerRun(layer=blocks[0].layer, count=1)))
    model = ModelSpec(
        name="towers",
        towers=(vision, bridge, language),
        edges=(
            TowerEdge(source="vision", target="bridge"),
            TowerEdge(source="bridge", target="text"),
        ),
    )
    return [(t.weights, t.backward) for t in layer_trainings(model, None, frozen)]


def test_the_backward_ends_at_the_first_trained_layer() -> None:
    frozen, passing, trained = (False, False), (False, True), (True, True)
    assert towers(()) == [trained] * 5
    assert towers(("vision",)) == [frozen, frozen, trained, trained, trained]
    assert towers(("vision", "text")) == [frozen, frozen, trained, passing, passing]
    assert towers(("vision", "bridge")) == [frozen, frozen, frozen, trained, trained]


def test_what_is_typed_becomes_adapters() -> None:
    model = load_model("llama-2-7b")[0]
    assert trainable_of(None, model) == trainable_of("full", model) == (None, ())
    found, _ = trainable_of("lora:rank=8,targets=query,value,base_dtype=fp16", model)
    assert found == Lora(rank=8, alpha=16.0, targets=("query", "value"), base_dtype="fp16")
    every, _ = trainable_of("lora:targets=all", model)
    assert every is not None
    assert every.targets == ("query", "key", "value", "output", "gate", "up", "down")
    for text in ("lora:rang=8", "lora:8", "lora:rank=x", "frozen:", "frozen:main,text", "half"):
        with pytest.raises(InputError, match="--trainable"):
            trainable_of(text, model)


@pytest.mark.parametrize("stack", STACKS)
def test_a_frozen_table_on_two_stages_has_no_gradient_to_sum(stack: str) -> None:
    given: dict[str, object] = {"dtype": "bf16", "stack": stack, "trainable": "lora"}
    lora = simulate(problem("gpt2", "1x8xH200", 64, 1024, **given), pp=2)
    assert [run.tied_reduction_s for run in lora.stages] == [0, 0]
    full = simulate(problem("gpt2", "1x8xH200", 64, 1024, dtype="bf16", stack=stack), pp=2)
    assert all(run.tied_reduction_s > 0 for run in full.stages)


def test_adapters_are_run_beside_whole_weights_of_their_own_format() -> None:
    workload = asked("lora").workload
    assert unsupported_run(LayerStrategy(), workload) is None
    sharded = LayerStrategy(shard=Sharding(parameters=2, gradients=2, optimizer=2))
    assert "lora" in (unsupported_run(sharded, workload) or "")
