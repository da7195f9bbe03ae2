"""Rules of plans: what no machine could run is named, all of it, and quickly."""

from __future__ import annotations

import itertools
import json
import random
import time
from dataclasses import replace
from typing import Any

import pytest
from generators.samples import sample

from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.errors import InputError
from shardwright.spec.model.model_spec import BlockLayer, LayerRun, ModelSpec, Tower, TowerEdge
from shardwright.spec.plan.plan import Plan, StageDevices, load_plan
from shardwright.spec.rules.input_rules import cluster_problems, model_problems
from shardwright.spec.rules.plan_rules import unsupported_dtype, unsupported_run
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.workload import DtypeRecord, Workload

ROLES = ("param", "gradient", "master", "moments", "communication")
FORMATS = ("fp32", "bf16", "fp16")


def a_plan(devices: int = 2) -> Plan:
    """A legal plan of a tied rotary model on several devices."""
    return next(
        plan
        for plan in (sample(seed).plan for seed in range(400))
        if plan.cluster.device_count >= devices
        and plan.model.tie_embeddings
        and block_of(plan.model).attention.rotary
    )


def block_of(model: ModelSpec) -> BlockLayer:
    return next(layer for layer in model.kinds() if isinstance(layer, BlockLayer))


def with_layers(model: ModelSpec, *layers: Any) -> ModelSpec:
    runs = tuple(LayerRun(layer=layer) for layer in layers)
    return replace(model, towers=(Tower(name="text", layers=runs),))


def broken_models() -> dict[str, ModelSpec]:
    model = a_plan().model
    embedding, *_, head = model.layers()
    block = block_of(model)
    uneven = replace(block, attention=replace(block.attention, heads=12, kv_heads=5))
    odd = replace(block, attention=replace(block.attention, head_dim=33))
    narrow = replace(block, hidden=block.hidden // 2)
    other = replace(head, vocab=head.vocab + 1)  # type: ignore[type-var, union-attr]
    tower = model.towers[0]
    return {
        "kv_heads 5; needs a divisor of heads 12; nearest: 4": with_layers(
            model, embedding, uneven, head
        ),
        "head_dim 33; needs an even number": with_layers(model, embedding, odd, head),
        "hidden several widths": with_layers(model, embedding, block, narrow, head),
        "head.vocab": with_layers(model, embedding, block, other),
        "towers": replace(model, towers=(tower, replace(tower, name="other"))),
        "edges.0": replace(model, edges=(TowerEdge(source=tower.name, target=tower.name),)),
        "towers another arrangement": with_layers(model, block, block, head),
        "towers another arrangement; needs": with_layers(model, embedding, embedding, block, head),
        "towers another arrangement; needs an embedding,": with_layers(model, embedding, head),
    }


@pytest.mark.parametrize("reason", list(broken_models()))
def test_impossible_models_are_named(reason: str) -> None:
    model = broken_models()[reason]
    found = [f"{p.field} {p.reason}" for p in model_problems(model)]
    assert len(found) == 1
    assert found[0].startswith(reason)
    plan = replace(a_plan(), models={"main": model})
    assert any(str(v).startswith("models.main.") for v in plan.check())
    with pytest.raises(InputError, match=reason.partition(" ")[0]):
        load_plan(json.dumps(plan.to_document()), "plan")


def test_every_problem_of_a_model_is_listed() -> None:
    model = a_plan().model
    embedding, *_, head = model.layers()
    block = block_of(model)
    attention = replace(block.attention, heads=12, kv_heads=5, head_dim=33)
    other = replace(head, vocab=head.vocab + 1)  # type: ignore[type-var, union-attr]
    broken = with_layers(model, embedding, replace(block, attention=attention), other)
    assert [p.field for p in model_problems(broken)] == ["kv_heads", "head_dim", "head.vocab"]


def test_an_untied_head_may_have_another_vocabulary() -> None:
    model = a_plan().model
    embedding, *_, head = model.layers()
    other = replace(head, vocab=head.vocab + 1)  # type: ignore[type-var, union-attr]
    free = replace(with_layers(model, embedding, block_of(model), other), tie_embeddings=False)
    assert list(model_problems(free)) == []


def levels_of(cluster: ClusterSpec, *sizes: int) -> ClusterSpec:
    names = ("intra_pair", "intra_node", "intra_rack", "inter_rack")
    pairs = zip(names[-len(sizes) :], sizes, strict=True)
    levels = tuple(replace(cluster.levels[0], level=name, group_size=size) for name, size in pairs)
    return replace(cluster, levels=levels)


def test_levels_that_do_not_nest_are_named() -> None:
    plan = a_plan()
    group = replace(plan.cluster.groups[0], nodes=3, devices_per_node=4)
    cluster = replace(plan.cluster, groups=(group,))
    assert list(cluster_problems(levels_of(cluster, 4, 8, 16))) == []
    assert list(cluster_problems(levels_of(cluster, 2, 4, 8, 16))) == []
    wrong = {
        (3, 4, 8, 16): ["levels.1.group_size"],
        (2, 8, 16): ["levels.0.group_size"],
        (4, 6, 12): ["levels.1.group_size"],
        (4, 8): ["levels"],
    }
    for sizes, fields in wrong.items():
        broken = levels_of(cluster, *sizes)
        if len(sizes) == 2:
            broken = replace(broken, levels=broken.levels[:2])
        found = [p.field for p in cluster_problems(broken)]
        assert found[: len(fields)] == fields, sizes
        paths = [v.path for v in replace(plan, cluster=broken).check()]
        assert f"cluster.{fields[0]}" in paths, sizes
    turned = replace(cluster, levels=levels_of(cluster, 4, 8, 16).levels[::-1])
    assert "levels.1.level" in [p.field for p in cluster_problems(turned)]


def test_two_programs_are_listed_with_their_violations_not_raised() -> None:
    plan = a_plan()
    first = plan.program
    wrong = replace(first, name="other", schedule=replace(first.schedule, microbatches=997))
    paths = {v.path for v in replace(plan, programs=(first, wrong)).check()}
    assert paths == {"programs", "programs.1.schedule"}


def test_programs_are_checked_against_their_own_model() -> None:
    plan = a_plan()
    broken = broken_models()["head_dim 33; needs an even number"]
    other = replace(plan.program, name="other", model="other")
    two = replace(plan, models={**plan.models, "other": broken}, programs=(plan.program, other))
    found = {v.path for v in two.check()}
    assert found == {"programs", "models.other.head_dim"}


@pytest.mark.parametrize("seed", range(40))
def test_devices_of_two_stages_are_found(seed: int) -> None:
    source = random.Random(seed)
    plan = next(p for s in itertools.count(seed) if len((p := sample(s).plan).program.stages) > 1)
    stages, size = plan.program.stages, plan.cluster.device_count
    width = stages[0].device_count
    firsts = [source.randrange(size - width + 1) for _ in stages]
    moved = tuple(
        replace(stage, devices=(replace(stage.devices[0], first_rank=first),))
        for stage, first in zip(stages, firsts, strict=True)
    )
    spans = [set(range(first, first + width)) for first in firsts]
    overlap = any(a & b for a, b in itertools.combinations(spans, 2))
    broken = replace(plan, programs=(replace(plan.program, stages=moved),))
    found = [v for v in broken.check() if v.message == "a device is in two stages"]
    assert bool(found) == overlap


def test_a_stage_of_a_trillion_devices_is_checked_at_once() -> None:
    plan = a_plan()
    group = replace(plan.cluster.groups[0], nodes=2**24, devices_per_node=2**16)
    stage = replace(
        plan.program.stages[0],
        devices=(StageDevices(device_group=group.name, first_rank=0, count=2**40),),
    )
    huge = replace(
        plan,
        cluster=replace(plan.cluster, groups=(group,)),
        programs=(replace(plan.program, stages=(stage, stage)),),
    )
    started = time.process_time()
    assert "a device is in two stages" in [v.message for v in huge.check()]
    assert time.process_time() - started < 2


def test_a_layer_held_again_and_again_is_refused_at_once() -> None:
    plan = a_plan()
    stage = plan.program.stages[0]
    part = replace(stage.virtual_stages[0][0], layers=(plan.model.towers[0].name, 0, 1))
    again = replace(stage, virtual_stages=((part,) * 20000,))
    started = time.process_time()
    broken = replace(plan, programs=(replace(plan.program, stages=(again,)),))
    assert any("exactly once" in v.message for v in broken.check())
    assert time.process_time() - started < 2


def executed(dtype: DtypeRecord) -> str | None:
    return unsupported_run(LayerStrategy(), Workload(global_batch=1, seq_len=8, dtype=dtype))


def test_the_executor_takes_what_three_words_mean_and_names_every_other_role() -> None:
    accepted = []
    for formats in itertools.product(FORMATS, repeat=len(ROLES)):
        dtype = DtypeRecord(**dict(zip(ROLES, formats, strict=True)))  # type: ignore[arg-type]
        reason = executed(dtype)
        assert reason == unsupported_dtype(dtype)
        if reason is None:
            accepted.append(dtype)
    assert sorted(accepted, key=lambda d: d.param) == [
        DtypeRecord.from_shorthand("bf16"),
        DtypeRecord(communication="bf16"),
        DtypeRecord.from_shorthand("fp16"),
        DtypeRecord.from_shorthand("fp32"),
    ]


@pytest.mark.parametrize("role", ROLES[1:])
@pytest.mark.parametrize("name", FORMATS[1:])
def test_a_role_that_is_not_run_is_named(role: str, name: str) -> None:
    for param in ("fp32", "bf16"):
        dtype = replace(DtypeRecord.from_shorthand(param), **{role: name})  # type: ignore[arg-type]
        if (role, name) == ("communication", "bf16"):
            said = f"reductions in bf16 beside {param} computations are not run yet; use bf16"
            assert executed(dtype) == (None if param == "bf16" else said)
            continue
        assert executed(dtype) == f"dtype.{role} {name} is not run yet; use fp32"
