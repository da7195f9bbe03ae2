"""Rows of experts in the GPU report: what they time is right, at tiny sizes on a core."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from gpu import kernel_table
from gpu.child import make_setting
from gpu.entry import FULL, TINY, Entry, collected, unjudged_families
from gpu.families import expert_gate, expert_rows, grouped_matmul

from shardwright.spec.model.feed_forward import BALANCED_GATES, Gate

NEW = [
    *expert_gate.entries(TINY),
    *expert_rows.entries(TINY),
    *(entry for entry in grouped_matmul.entries(TINY) if "load" in entry.case),
]


@pytest.mark.parametrize("entry", NEW, ids=lambda entry: entry.key)
def test_a_row_is_its_reference(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_table, "BUDGET_S", 0.0)
    found = kernel_table.measure(entry, TINY, make_setting(tmp_path, reduced=True))
    assert found["error"] <= (1e-5 if entry.error_limit else 0.0)
    assert found["ours"]["time_s"] > 0
    assert found["floor_s"] is None  # no rate was measured


def test_every_gate_whose_tokens_choose_has_rows_both_ways() -> None:
    gates = {gate.moe.gate for gate in expert_gate.GATES}
    assert gates == {*get_args(Gate)} - {*BALANCED_GATES}
    modes = [(entry.case, entry.mode) for entry in collected(FULL) if entry.family == "expert_gate"]
    assert len(modes) == len({*modes}) == 2 * len(expert_gate.GATES)
    assert {"expert_gate", "expert_order", "expert_combine"} <= {*unjudged_families(FULL)}


def test_loads_have_the_same_rows_in_other_groups() -> None:
    rows = FULL.tokens
    even, skewed = (grouped_matmul.group_bounds(rows, exponent) for exponent in (0.0, 1.0))
    assert even == [n * rows // grouped_matmul.GROUPS for n in range(grouped_matmul.GROUPS + 1)]
    assert skewed[0] == 0
    assert skewed[-1] == rows
    first, second = skewed[1], skewed[2] - skewed[1]
    assert first == pytest.approx(2 * second, abs=2)
    work = {e.work for e in grouped_matmul.entries(FULL) if e.mode == "forward"}
    assert len(work) == 1
