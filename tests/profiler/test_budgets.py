"""What is timed ends in time, and every kind of work is timed once whatever the budget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardwright.executor.launch.rank_context import RankContext
from shardwright.profiler import sweep
from shardwright.profiler.cases.all_cases import COARSE, FINE, Sizes, all_cases
from shardwright.profiler.overhead.probes import Probe, probe_plan
from shardwright.profiler.timing import kernel_timing, link_timing, step_timing
from shardwright.spec.report.work_items import GROUPED, MATMULS

TINY = Sizes(sides=(8, 16), elements=(1024, 2048), heads=(2, 4), sequences=(16, 32), head_dims=(8,))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankContext]:
    """A process group of this process only."""
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield RankContext(0, 1, torch.device("cpu"), 60.0, lambda event: None)
    dist.destroy_process_group()


def kind(row: dict[str, Any]) -> tuple[Any, ...]:
    """What has a price of its own: operation, type, and which pattern of batched product."""
    _, m, _, n = row["shape"] if row["op"] == "batched_matmul" else (0, 0, 0, 1)
    return row["op"], row["dtype"], m == n


def timed(alone: RankContext, budget_s: float, dtypes: list[str]) -> list[dict[str, Any]]:
    payload = {"coarse": True, "dtypes": dtypes, "budget_s": budget_s}
    found = kernel_timing.measure_kernels(alone, payload)
    assert found["skipped"] == []
    rows: list[dict[str, Any]] = found["rows"]
    return rows


@pytest.mark.parametrize("dtypes", [["fp32"], ["fp32", "bf16"]])
def test_every_kind_of_kernel_is_timed_once_when_time_is_up(
    alone: RankContext, monkeypatch: pytest.MonkeyPatch, dtypes: list[str]
) -> None:
    monkeypatch.setattr(kernel_timing, "sizes_for", lambda device, coarse: TINY)
    monkeypatch.setattr(kernel_timing, "ENOUGH_S", 0.0)
    few, all_rows = timed(alone, 0.0, dtypes), timed(alone, 60.0, dtypes)
    assert len(few) < len(all_rows)
    kinds = [kind(row) for row in few]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == {kind(row) for row in all_rows}
    assert {row["op"] for row in few} >= MATMULS - GROUPED  # no experts are run here


@pytest.mark.parametrize("sizes", [COARSE, FINE, TINY])
def test_the_first_pass_is_part_of_the_grid(sizes: Sizes) -> None:
    middle = sizes.middle()
    for name in ("sides", "elements", "heads", "sequences", "head_dims"):
        (value,) = getattr(middle, name)
        assert value in getattr(sizes, name)


def test_no_case_is_timed_twice() -> None:
    kernels = [case.kernel for case in all_cases(TINY, ("fp32", "bf16"))]
    assert len(kernels) == len(set(kernels))


def test_a_long_case_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_timing, "LONG_S", 0.01)
    runs: list[int] = []
    case = next(iter(all_cases(TINY, ("fp32",))))
    seconds, spread = kernel_timing.time_case(
        case._replace(prepare=lambda: lambda: (runs.append(1), time.sleep(0.02)))
    )
    assert (len(runs), spread) == (1, 0.0)
    assert seconds >= 0.02


def test_a_case_can_be_hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_timing, "ENOUGH_S", 0.0)
    runs: list[int] = []
    case = next(iter(all_cases(TINY, ("fp32",))))._replace(prepare=lambda: lambda: runs.append(1))
    for most_runs, made in ((1, 2), (kernel_timing.MAX_RUNS, 1 + kernel_timing.MIN_RUNS)):
        runs.clear()
        kernel_timing.time_case(case, most_runs)
        assert len(runs) == made


def test_a_collective_is_timed_once_when_time_is_up(alone: RankContext) -> None:
    runs: list[int] = []
    for end_s, warm_up_and_timed, over in ((0.0, 2, True), (1e12, 1 + link_timing.RUNS, False)):
        runs.clear()
        (seconds, spread), is_over = link_timing._timed(lambda: runs.append(1), end_s, alone.device)
        assert (len(runs), is_over) == (warm_up_and_timed, over)
        assert seconds > 0
        assert spread >= 0


@pytest.mark.parametrize(
    ("budget_s", "rounds"), [(0.0, 1), (60.0, len(link_timing.COARSE_ELEMENTS))]
)
def test_links_end_after_the_first_round_when_time_is_up(
    alone: RankContext, monkeypatch: pytest.MonkeyPatch, budget_s: float, rounds: int
) -> None:
    """With two groups that are this process: every kind once, over each."""
    monkeypatch.setattr(link_timing, "_group_sizes", lambda world_size: [3, 6])
    monkeypatch.setattr(link_timing, "_my_group", lambda context, size: dist.group.WORLD)
    monkeypatch.setattr(
        link_timing, "_operations", lambda *_: [("all_reduce", int), ("all_gather", int)]
    )
    rows = link_timing.measure_links(alone, {"coarse": True, "budget_s": budget_s})
    assert len(rows) == 4 * rounds
    assert {(row["kind"], row["ranks"]) for row in rows[:4]} == {
        (kind, ranks) for kind in ("all_reduce", "all_gather") for ranks in (3, 6)
    }


@pytest.mark.parametrize(("budget_s", "timed_steps"), [(0.0, 1), (60.0, 4)])
def test_steps_end_when_time_is_up(alone: RankContext, budget_s: float, timed_steps: int) -> None:
    document = probe_plan(Probe(blocks=1), 1).to_document()
    payload = {"plan": document, "steps": 4, "budget_s": budget_s}
    assert len(step_timing.step_seconds(alone, payload)) == timed_steps


def test_the_least_of_several_rounds_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 40 s of a made-up clock: as many are made as end in time."""
    now_s = [0.0]
    kernel = {"op": "add", "shape": [8], "dtype": "fp32", "flops": 0, "traffic_bytes": 96}
    link = {"kind": "send", "ranks": 2, "payload_bytes": 64}
    timed = {"measure_kernels": [3e-6, 2e-6, 1e-6], "measure_links": [4e-6, 5e-6, 1e-6]}
    steps: list[float] = []

    class Pool:
        def __init__(self, ranks: int, device: str) -> None:
            assert (ranks, device) == (2, "cpu")

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def run(self, job: str, payload: dict[str, Any], *_: object, **__: object) -> list[Any]:
            name = job.partition(":")[2]
            if name == "step_seconds":
                return [[1.0 - len(steps) / 10]]
            if name not in timed:
                return [{"rows": [], "skipped": []}]
            now_s[0] += 20
            if name == "measure_links":
                return [[{**link, "time_s": timed[name].pop(0)}]]
            return [{"rows": [{**kernel, "time_s": timed[name].pop(0)}], "skipped": []}]

    def fitted(profile: Any, measure: Any, coarse: bool, is_over: Any) -> Any:
        steps.append(measure(probe_plan(Probe(), 2)))
        return profile

    monkeypatch.setattr(sweep, "WorkerPool", Pool)
    monkeypatch.setattr(sweep, "with_overheads", fitted)
    monkeypatch.setattr(sweep.time, "monotonic", lambda: now_s[0])
    found = sweep.measure(100.0, 2)
    assert [row.time_s for row in found.kernels] == [2e-6]
    assert [row.time_s for row in found.collectives] == [4e-6]
    assert steps == [1.0, 0.9]


def test_links_and_steps_are_given_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool whose every job takes 4 s of a made-up clock."""
    now_s = [100.0]
    jobs: list[tuple[str, dict[str, Any]]] = []

    class Pool:
        def __init__(self, ranks: int, device: str) -> None:
            now_s[0] += 4

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            now_s[0] += 1

        def run(self, job: str, payload: dict[str, Any], *_: object, **__: object) -> list[Any]:
            name = job.partition(":")[2]
            if name in ("measure_copies", "measure_sharing"):
                return [{"rows": [], "skipped": []}]
            now_s[0] += 4
            jobs.append((name, payload))
            none = {"rows": [], "skipped": []}
            return [{"step_seconds": [0.5], "measure_kernels": none}.get(name, [])]

    monkeypatch.setattr(sweep, "WorkerPool", Pool)
    monkeypatch.setattr(sweep.time, "monotonic", lambda: now_s[0])
    sweep.measure(20.0, 2)
    assert [name for name, _ in jobs[:3]] == ["warm_up", "measure_kernels", "measure_links"]
    budgets = [payload["budget_s"] for _, payload in jobs[1:]]
    assert budgets[:3] == pytest.approx([5.0, 2.4, 2 / 3])
    assert budgets[3:] == [0.0, 0.0], "as few probes as can be, and messages"
