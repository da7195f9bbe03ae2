"""Where nothing fits: every kind of change, cheapest first, within a share of the work."""

from __future__ import annotations

import re

import pytest

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.solve.feasibility import QuickProbe
from shardwright.planner.solve.nearest_feasible import with_feasible_changes
from shardwright.planner.solve.options import DEFAULT_OPTIONS
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.planner.solve.state_changes import state_changes
from shardwright.spec.errors import InfeasibleError

MPT_7B = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "ffn": 16384,
    "vocab": 50432,
    "norm": "layernorm",
    "activation": "gelu",
    "tie_embeddings": True,
}
SEPARATOR = "; smallest change that fits: "


def mpt(**changed: object) -> Problem:
    given = {"global_batch": 8, "seq_len": 2048, **changed}
    return resolve(Inputs(model=MPT_7B, cluster="1xA100-80GB", **given))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def refused() -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        solve(mpt())
    return caught.value


def test_what_fits_on_one_device_is_named(refused: InfeasibleError) -> None:
    """MPT-7B on one A100: 8-bit moments and offload fit, not only other devices."""
    changes = str(refused).partition(SEPARATOR)[2].split(", or ")
    for name in ("--optimizer adamw8bit", "--host-gib ", "--trainable lora", "--moment-dtype bf16"):
        assert any(change.startswith(name) or name in change for change in changes), name
    assert any(change.startswith("devices with") for change in changes)
    assert "not planned" not in str(refused)


def test_what_is_named_fits_and_costs_grow(refused: InfeasibleError) -> None:
    text = str(refused)
    host = re.search(r"--host-gib (\d+)", text)
    assert host is not None
    for changed in ({"optimizer": "adamw8bit"}, {"host_gib": float(host[1])}):
        assert solve(mpt(**changed)).prediction.feasible
    cheapest = text.partition(SEPARATOR)[2].split(", or ")[0]
    assert cheapest.startswith("--trainable lora")


def test_what_is_not_planned_is_told_by_its_memory(refused: InfeasibleError) -> None:
    bare = InfeasibleError(refused.what, "", refused.need_bytes, by=refused.by)
    told = str(with_feasible_changes(bare, mpt(), (), QuickProbe(DEFAULT_OPTIONS, None, 0)))
    assert re.search(r"--optimizer adamw8bit \(not planned: 110.3 GiB - [\d.]+ GiB\)", told), told


def test_a_change_is_none_that_is_made_already() -> None:
    texts = {change.text for change in state_changes(mpt(optimizer="adamw8bit", host_gib=90.0))}
    assert not texts & {"--optimizer adamw8bit", "--host-gib"}
    assert "--trainable lora:rank=16" not in {
        change.text for change in state_changes(mpt(trainable="lora:rank=8"))
    }


def test_no_format_is_suggested_that_would_be_refused() -> None:
    """Moments of adamw8bit are 8-bit blocks; a flag for their format is refused beside it."""
    texts = [change.text for change in state_changes(mpt(optimizer="adamw8bit"))]
    assert not any("--moment-dtype" in text for text in texts)
    assert "--grad-dtype bf16 --master-dtype bf16" in texts


def test_adapters_of_a_large_model_stand_over_weights_in_4_bits() -> None:
    """13 GB of bf16 weights leave no room on 12 GB; in 4 bits they do."""
    with pytest.raises(InfeasibleError) as caught:
        solve(mpt(memory_gib=12.0))
    changes = str(caught.value).partition(SEPARATOR)[2].split(", or ")
    assert "--trainable lora:rank=16,base_dtype=nf4" in changes
    assert "--trainable lora:rank=16" not in changes
