"""The bundled stacks: every figure sourced, what they hide consistent with the typed modes."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from shardwright.datasets.catalogue.stack import GROUPS, NO_FIGURES, stack, stack_sources, stacks
from shardwright.spec.choices import OVERLAPS
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.errors import InputError


def test_every_figure_of_every_stack_has_a_source() -> None:
    plain = {f.name for f in fields(StackSpec)} - {*NO_FIGURES, *GROUPS}
    inner = {f"{g}.{f.name}" for g, kind in GROUPS.items() for f in fields(kind)}
    for name in stacks():
        sources = stack_sources(name)
        assert set(sources) == plain | inner
        assert all(len(source) > 10 for source in sources.values())


@pytest.mark.parametrize("name", list(stacks()))
def test_a_typed_mode_is_the_mode_that_the_stack_then_has(name: str) -> None:
    for mode in OVERLAPS:
        assert stack(name).with_overlap(mode).overlap == mode


@pytest.mark.parametrize("name", list(stacks()))
def test_wider_modes_hide_all_that_narrower_ones_hide(name: str) -> None:
    hidden: set[str] = set()
    for mode in OVERLAPS:
        kinds = stack(name).with_overlap(mode).overlaps
        now = {f.name for f in fields(kinds) if getattr(kinds, f.name)}
        assert hidden <= now
        hidden = now
    assert hidden == {"dp_gradient", "dp_parameter", "tp", "pp", "cp", "ep"}


def test_the_stacks_as_published_hide_what_their_defaults_say() -> None:
    assert [stack(n).overlap for n in ("shardwright", "megatron")] == ["dp", "none"]
    assert stack("torchtitan").overlap == "dp"
    assert stack("torchtitan").compile
    assert not stack("megatron").overlaps.pp


def test_an_unknown_stack_names_the_nearest() -> None:
    with pytest.raises(InputError, match="torchtitan"):
        stack("torch-titan")


def test_a_stack_like_another_differs_in_what_it_states() -> None:
    eager, graphs = stack("megatron"), stack("megatron-cuda-graphs")
    assert graphs.launch_s == 0 < eager.launch_s
    changes = {
        key: getattr(eager, key) for key in ("name", "launch_s", "pass_s", "expert_dispatch")
    }
    assert replace(graphs, **changes) == eager
    assert stack_sources("megatron-cuda-graphs").keys() == stack_sources("megatron").keys()
