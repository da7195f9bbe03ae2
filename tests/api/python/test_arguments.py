"""Arguments of the Python functions: signatures, unknown names, pins in three forms."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.notebook.simulate import INPUT_FLAGS, STRATEGY_FLAGS
from shardwright.api.problem.names import GROUPS, unknown_argument
from shardwright.api.problem.pins import pin_texts
from shardwright.spec.errors import InputError

FUNCTIONS = ("plan", "simulate", "what_if", "explain", "compare", "execute", "validate", "clusters")
SIZE: dict[str, Any] = {"global_batch": 8, "seq_len": 64}


def parameters(name: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(sw, name)).parameters)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_named_and_typed(name: str) -> None:
    found = parameters(name)
    kinds = {item.kind for item in found.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert all(item.annotation is not inspect.Parameter.empty for item in found.values())


def test_a_simulation_takes_what_the_command_takes() -> None:
    assert {*INPUT_FLAGS, *STRATEGY_FLAGS} <= {*parameters("simulate")}
    assert {*INPUT_FLAGS} - {"task", "attention", "overlap"} <= {*parameters("plan")}


def test_a_group_names_what_there_is() -> None:
    known = {name for function in FUNCTIONS for name in parameters(function)}
    known |= {"kernels", "trace", "lr", "new_stage"}  # of a handle's own execute
    known |= {"workload", "constraints", "strategy", "include"}  # of bodies
    assert {name for names in GROUPS.values() for name in names} <= known


@pytest.mark.parametrize(
    ("call", "given", "near"),
    [
        (sw.plan, {"batch_size": 8}, "global_batch"),
        (sw.plan, {"sequence_length": 8}, "seq_len"),
        (sw.plan, {"pin": ["tp=2"]}, "pins"),
        (sw.plan, {"timeout": 8}, "deadline_s"),
        (sw.plan, {"tp": 8}, "pins={'tp': 8}"),
        (sw.plan, {"zero_stage": 3}, "pins={'shard': …}"),
        (sw.plan, {"shard": "zero3"}, "pins={'shard': 'zero3'}"),
        (sw.simulate, {"tpp": 2}, "tp"),
        (sw.simulate, {"tensor_parallel_size": 2}, "tp"),
        (sw.what_if, {"sweeps": 2}, "sweep"),
        (sw.explain, {"stak": "megatron"}, "stack"),
        (sw.execute, {"save": "x"}, "save_hf"),
    ],
)
def test_an_unknown_argument_names_the_nearest(
    call: Callable[..., Any], given: dict[str, Any], near: str
) -> None:
    with pytest.raises(InputError) as caught:
        call(**given)
    assert (caught.value.field, caught.value.nearest) == (*given, near)
    names = inspect.signature(call).parameters
    assert all(name in str(caught.value) for name in names)  # the whole list, by group
    assert len(str(caught.value).splitlines()) == 1


def test_what_resembles_nothing_is_listed_against_all() -> None:
    error = unknown_argument("zzzz", ("model", "seq_len", "odd"))
    assert str(error) == (
        "zzzz: got an unknown argument; allowed: model; size: seq_len; others: odd"
    )


def test_techniques_are_arguments_by_name_or_in_a_mapping() -> None:
    named = sw.simulate("gpt2", "2xH100", **SIZE, shard="zero3", cpu_offload="optimizer")
    given = {"cpu_offload": "optimizer"}
    mapped = sw.simulate("gpt2", "2xH100", **SIZE, shard="zero3", techniques=given)
    assert named.plan.hash == mapped.plan.hash
    assert named.plan.hash != sw.simulate("gpt2", "2xH100", **SIZE, shard="zero3").plan.hash
    with pytest.raises(InputError, match=r"cpu_ofload: got an unknown argument.*nearest: cpu_offl"):
        sw.simulate("gpt2", "2xH100", **SIZE, techniques={"cpu_ofload": "all"})
    with pytest.raises(InputError, match="techniques: got 'all'; allowed: a mapping"):
        sw.simulate("gpt2", "2xH100", **SIZE, techniques="all")  # type: ignore[arg-type]


PINS = ("tp=2", "recompute@1-4=ops:save=qkv,core", "shard=1/1/8")


@pytest.mark.parametrize(
    "given",
    [
        {"tp": 2, "recompute@1-4": "ops:save=qkv,core", "shard": "1/1/8"},
        list(PINS),
        iter(PINS),
        ", ".join(PINS),
        " ".join(PINS),
        ",".join(PINS) + ",",
    ],
    ids=["mapping", "list", "iterator", "commas and spaces", "spaces", "commas"],
)
def test_pins_have_three_forms(given: Any) -> None:
    assert pin_texts(given) == PINS


def test_no_pins() -> None:
    assert pin_texts("") == pin_texts(()) == pin_texts({}) == ()


@pytest.mark.parametrize("given", [{"tp": [2]}, {"tp": True}, {"tp": None}, [3], 3])
def test_pins_of_other_types(given: Any) -> None:
    with pytest.raises(InputError, match=r"^pins: got .*; nearest: \{'tp': 8"):
        sw.plan("gpt2", "2xH100", **SIZE, pins=given)


def test_errors_have_a_name() -> None:
    with pytest.raises(sw.errors.InputError):
        sw.plan("gpt2", "8xH100", global_batch=8)
    assert issubclass(sw.errors.InfeasibleError, sw.errors.ShardwrightError)
