"""Allocation requests of rehearsed steps, and what a replay refuses before it starts."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
import torch
from generators.plan_cases import Case, Sizes, sharded
from rich.console import Console

from shardwright.api.execution import addresses
from shardwright.api.planning.report import simulate_plan
from shardwright.api.terminal.run import print_dry_run
from shardwright.datasets.catalogue.stack import stack
from shardwright.executor.techniques.address_plan import require_cores, require_room
from shardwright.executor.train.address_rehearsal import rehearse_addresses
from shardwright.executor.train.dry_run import dry_run
from shardwright.planner.addresses.ranks import rank_addresses
from shardwright.planner.addresses.solve import solve_addresses
from shardwright.spec.errors import InputError, RunError
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.allocation_trace import AllocationTrace, Request, most_live_bytes
from shardwright.spec.report.planned_addresses import (
    PlannedAddresses,
    RankAddresses,
    addresses_path,
    keep_addresses,
    kept_addresses,
)
from shardwright.spec.techniques.address_plan import NAME, AddressPlan

SIZES = Sizes(blocks=4, hidden=64, heads=8, kv_heads=8, ffn=128, vocab=512)
CASE = Case(name="", ranks=2, sizes=SIZES, seq_len=64, strategies=sharded("zero1", 2))


def planned(case: Case) -> Plan:
    return replace(case, program=((NAME, AddressPlan()),)).plan()


def test_requests_of_passes_are_the_bytes_beyond_those_that_stay() -> None:
    plan = CASE.plan()
    (trace,) = rehearse_addresses(plan)
    (row,) = dry_run(plan)
    beyond = row["peak_bytes"] - row["resident_bytes"]
    assert 0.9 * beyond <= most_live_bytes(trace.requests) <= beyond
    assert len(trace.passes) == 2 * plan.program.schedule.microbatches
    assert dry_run(planned(CASE))[0] == row


def test_equal_layers_ask_for_equal_bytes() -> None:
    (trace,) = rehearse_addresses(CASE.plan())
    starts, bounds = trace.section_starts(), (trace.passes[0], trace.passes[1])
    sections = [
        tuple(request.bytes for request in trace.requests[starts[n] : starts[n + 1]])
        for n in range(*bounds)
    ]
    most = max({*sections}, key=sections.count)
    assert sections.count(most) == SIZES.blocks
    solution = solve_addresses(trace.placed(64))
    assert solution.live_bytes <= solution.arena_bytes <= 1.02 * solution.live_bytes


def test_what_outlives_a_step_has_no_place() -> None:
    requests = (Request(8, 0, 2), Request(8, 1, 9))
    trace = AllocationTrace(requests=requests, lasting=frozenset({1}), sections=(0,), passes=(0,))
    assert trace.placed(64).requests == (Request(64, 0, 2),)
    found = rank_addresses(trace)
    assert (found.offsets, found.untils, found.sections) == ((0, -1), (2, 2), (0, 2))


def test_a_dry_run_gives_rehearsed_addresses_until_there_are_recorded_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = planned(CASE)
    traces = rehearse_addresses(plan)
    documents = [json.loads(json.dumps(trace.to_document())) for trace in traces]
    monkeypatch.setattr(addresses, "stage_documents", lambda plan, module: documents)
    assert addresses.address_document(CASE.plan()) is None
    found = addresses.address_document(plan)
    assert found is not None
    (row,) = found["solutions"]
    assert (found["source"], row["stage"]) == ("rehearsed", 0)
    assert row["live_bytes"] <= row["arena_bytes"] <= row["caching_allocator_bytes"]
    assert len(row["offsets"]) == len(row["bytes"]) == row["requests"]
    kept = addresses.planned_addresses(plan.hash, [*traces, *traces])
    assert kept.of_rank == (0, 0)
    keep_addresses(kept)
    assert kept_addresses(plan.hash) == kept
    assert addresses.require_addresses(plan, {}, print) == kept
    assert addresses.require_addresses(CASE.plan(), {}, print) is None
    again = addresses.address_document(plan)
    assert again is not None
    assert again["source"] == "recorded"
    assert again["solutions"][0]["ranks"] == [0, 1]
    assert again["solutions"][0]["offsets"] == row["offsets"]
    for document, of in ((found, "stage 0"), (again, "ranks 0-1")):
        assert of in printed(plan, document)


def printed(plan: Plan, document: dict[str, Any]) -> str:
    """What a person is told of a dry run with addresses."""
    stages = [{"stage": 0, "ranks": [0, 1], "layers": [0, 1], "groups": []}]
    dry = {"ranks": 2, "device": "cpu", "steps": 1, "stages": stages, "rehearsal": None}
    out = Console(file=StringIO(), width=120)
    print_dry_run(out, {**dry, "command": "", "addresses": document})
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


def test_a_solved_arena_stands_in_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = planned(CASE)
    before = simulate_plan(plan, stack("shardwright"), None, ()).report
    found = RankAddresses(
        passes=(),
        sections=(0,),
        sizes=(),
        offsets=(),
        untils=(),
        arena_bytes=7,
        live_bytes=4,
        by="",
    )
    keep_addresses(PlannedAddresses(plan_hash=plan.hash, different=(found,), of_rank=(0, 0)))
    after = simulate_plan(plan, stack("shardwright"), None, ()).report
    (old,), (new,) = before.prediction.memory, after.prediction.memory
    assert old.by["fragmentation"] == int(0.02 * old.allocated_bytes)
    assert new.by == {**old.by, "fragmentation": 3}
    assert new.reserved_bytes == sum(new.by.values())
    assert "solved addresses" in after.assumptions[-1].why
    assert after.plan.hash == before.plan.hash


def test_a_damaged_file_of_addresses_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    empty = RankAddresses(
        passes=(),
        sections=(0,),
        sizes=(),
        offsets=(),
        untils=(),
        arena_bytes=0,
        live_bytes=0,
        by="",
    )
    path = keep_addresses(PlannedAddresses(plan_hash="a", different=(empty,), of_rank=(0,)))
    assert path == addresses_path("a") != addresses_path("b")
    path.write_text('{"plan_hash": "a"}')
    with pytest.raises(InputError, match="delete it, and it is made"):
        kept_addresses("a")
    assert kept_addresses("b") is None


def test_a_replay_says_what_it_lacks_before_the_first_step() -> None:
    with pytest.raises(InputError, match="other devices are not replayed yet"):
        require_cores(torch.device("cuda", 0))
    require_cores(torch.device("cpu"))
    require_room(2**20, 2**20)
    require_room(2**20, None)
    with pytest.raises(RunError, match=r"arena has 2 MiB, but 1 MiB are free"):
        require_room(2**21, 2**20)
