"""Plans of every released schema load, and cost what the last release said (R15).

``python tests/support/published/golden_plans.py`` writes plans and figures of a new version; it
never touches
those that are there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from published import golden_plans
from published.golden_plans import MAKERS, PLANS, figures, plans, released, write_new

import shardwright as sw
from shardwright.spec.codec import dump_pretty
from shardwright.spec.plan.plan import SCHEMA_VERSION

KNOWN = plans()
LAST = list(released().values())[-1]


def test_there_are_plans_of_every_kind() -> None:
    names = {name.partition("/")[2] for name in KNOWN if name.startswith("schema-1/")}
    assert names >= set(MAKERS)
    assert sw.__version__ in released()
    assert set(LAST) == set(KNOWN)
    assert any(len(plan.cluster.groups) > 1 for plan in KNOWN.values())
    assert any(len(set(plan.layer_strategies())) > 2 for plan in KNOWN.values())
    techniques = {n for p in KNOWN.values() for s in p.layer_strategies() for n in s.techniques}
    assert techniques >= {"compile", "cpu_offload"}


@pytest.mark.parametrize("name", KNOWN)
def test_a_plan_of_an_old_release_costs_the_same(name: str) -> None:
    found, want = figures(KNOWN[name]), LAST[name]
    assert found["plan_hash"] == want["plan_hash"]
    assert found["memory"] == want["memory"]
    assert found["feasible"] == want["feasible"]
    for key in ("step_time_s", "mfu"):
        assert found[key] == pytest.approx(want[key], rel=1e-9)
    assert found["breakdown_s"] == pytest.approx(want["breakdown_s"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", KNOWN)
def test_a_plan_of_this_schema_is_written_as_it_was(name: str) -> None:
    path = PLANS / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["schema_version"] != SCHEMA_VERSION:
        pytest.skip("of an earlier schema: it is migrated when it is read")
    assert dump_pretty(KNOWN[name].to_document()) == path.read_text(encoding="utf-8")


def test_what_is_there_is_never_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_of_it() -> Any:
        return KNOWN["schema-1/compiled"]

    monkeypatch.setattr(golden_plans, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(golden_plans, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(golden_plans, "MAKERS", {"compiled": none_of_it})
    assert len(write_new()) == 2
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    assert write_new() == []
    monkeypatch.setattr(sw, "__version__", "9.9.9")
    (new,) = write_new()
    assert new.name == "9.9.9.json"
    assert all(path.read_bytes() == text for path, text in before.items())
