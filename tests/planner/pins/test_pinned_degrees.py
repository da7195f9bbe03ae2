"""Pinned degrees: what some strategy of a layer can have is no mistake."""

from __future__ import annotations

import pytest
from generators.catalogue_problems import problem

from shardwright.api.problem.pins import resolve_pins
from shardwright.spec.errors import InputError


def test_tp_beside_experts_leaves_sequence_parallelism_to_the_search() -> None:
    asked = problem("qwen3-30b-a3b", "8xH100-80GB", 64, 4096)
    pins = resolve_pins(("tp=2", "ep=4"), asked)
    assert [pin.text for pin in pins] == ["tp=2", "ep=4"]


@pytest.mark.parametrize("degree", [3, 64])
def test_tp_that_splits_no_heads_is_refused(degree: int) -> None:
    asked = problem("qwen3-30b-a3b", "8xH100-80GB", 64, 4096)
    with pytest.raises(InputError, match=r"--pin: got tp=\d+.*nearest: tp="):
        resolve_pins((f"tp={degree}",), asked)
