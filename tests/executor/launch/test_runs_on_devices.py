"""What a run on devices decides without one: wires, limits, late ranks, agreement, curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from generators.plan_cases import Case, Sizes

from shardwright.executor.data.text import RandomBatches
from shardwright.executor.groups.process_groups import channel_of, plan_channels
from shardwright.executor.launch.consistency import check_consistency, text_digest
from shardwright.executor.launch.join import ENDED, LATE_RANKS
from shardwright.executor.launch.pool import PoolOptions
from shardwright.executor.launch.process import rank_environment
from shardwright.executor.launch.progress import Progress
from shardwright.executor.launch.timeouts import device_timeouts
from shardwright.executor.launch.watchdog import NCCL_TIMEOUT, Watchdog, late_report
from shardwright.executor.tracing.memory_snapshot import cpu_snapshot
from shardwright.executor.tracing.recorder import MemoryChange
from shardwright.executor.tracing.segments import Segment
from shardwright.executor.tracing.step_memory import StepMemory, thinned
from shardwright.executor.tracing.timeline import RankTrace, measured_timeline
from shardwright.executor.train.job import TrainSettings
from shardwright.spec.errors import InputError, RunError
from shardwright.spec.schedules.stage_order import (
    ScheduleKind,
    chunk_location,
    chunk_position,
    stage_order,
)


@pytest.mark.parametrize(
    ("stages", "chunks", "kind"),
    [(2, 1, "1f1b"), (4, 1, "gpipe"), (2, 2, "interleaved"), (4, 2, "interleaved")],
)
def test_a_rank_only_sends_or_only_receives_on_a_wire(
    stages: int, chunks: int, kind: ScheduleKind
) -> None:
    """Then no message of a device waits in its stream behind one that is not there yet."""
    sizes, shape = Sizes(blocks=8), {"ranks": stages, "stages": stages, "chunks": chunks}
    case = Case(name="pipeline", sizes=sizes, kind=kind, micro_batch=2, **shape)
    plan = case.plan()
    used = set()
    for stage in range(stages):
        ways: dict[object, set[tuple[str, int]]] = {}
        order = stage_order(kind, stage, stages, chunks, plan.program.schedule.microbatches)
        for item in order:
            at = chunk_position(kind, stage, item.chunk, stages)
            before, after = (at - 1, at + 1) if item.forward else (at + 1, at - 1)
            for position, does in ((before, "receives"), (after, "sends")):
                if 0 <= position < stages * chunks:
                    peer = chunk_location(kind, position, stages)[0]
                    ends = (peer, stage) if does == "receives" else (stage, peer)
                    wire = channel_of(item.forward, *ends)
                    ways.setdefault(wire, set()).add((does, peer))
        assert all(len(uses) == 1 for uses in ways.values())
        used |= set(ways)
    assert sorted(used) == plan_channels(plan)


def test_one_stage_needs_no_wires() -> None:
    assert plan_channels(Case(name="one stage").plan()) == []


def test_accelerators_have_longer_limits() -> None:
    cores, devices = (
        PoolOptions.from_timeouts(device_timeouts(name)) for name in ("cpu", "H100-SXM-80GB")
    )
    assert replace(cores, stalled_after_s=None) == PoolOptions()
    assert devices.collective_timeout_s > cores.collective_timeout_s
    assert devices.silent_after_s > cores.silent_after_s


def test_ranks_of_this_machine_meet_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    made = rank_environment(1, 4)
    assert made["NCCL_SOCKET_IFNAME"] == made["GLOO_SOCKET_IFNAME"]
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    assert rank_environment(1, 4)["NCCL_SOCKET_IFNAME"] == "ib0"


@pytest.mark.parametrize("found", [None, "0", "1", "2", "3"])
def test_late_ranks_always_end(found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import device

    from shardwright.executor.launch import join

    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    if found is None:
        monkeypatch.delenv(LATE_RANKS, raising=False)
    else:
        monkeypatch.setenv(LATE_RANKS, found)
    import os

    join._claim_device(device("cuda", 0))
    assert os.environ[LATE_RANKS] in ENDED
    assert found not in ENDED or os.environ[LATE_RANKS] == found


def test_a_rank_that_nccl_ends_waited_in_vain() -> None:
    """It is the late rank that is named, not the one that NCCL's watchdog ended."""
    line = (
        f"[rank0]:[E1 ProcessGroupNCCL.cpp:632] [Rank 0] {NCCL_TIMEOUT}: WorkNCCL(SeqNum=7, "
        "OpType=ALLREDUCE, Timeout(ms)=60000) ran for 60012 milliseconds before timing out."
    )
    report = late_report(line)
    assert report is not None
    assert report.communication
    assert late_report("") is None
    watch = Watchdog(2, 5.0, 70.0)
    watch.begin("running", "job", 0.0)
    for state, where in zip(watch.states, ("pass F 0 0", "pass B 0 1"), strict=True):
        state.where = where
    watch.states[0].ending, watch.states[0].report = "was killed by SIGABRT", report
    assert not watch.has_root_cause()
    said = watch.diagnose(0.0).message
    assert said.startswith(f"rank 0 waited in vain for other ranks in pass F 0 0 ({NCCL_TIMEOUT}")
    assert said.endswith("rank 1 is in pass B 0 1")
    watch.states[1].ending = "was killed by SIGKILL"
    assert watch.diagnose(0.0).message.startswith("rank 1 was killed by SIGKILL")


def test_ranks_must_start_from_the_same() -> None:
    same = {"plan": "a", "--seed": "0"}
    check_consistency([same, dict(same)])
    with pytest.raises(RunError, match="rank 1 has another --seed than rank 0: 1, not 0; every"):
        check_consistency([same, {**same, "--seed": "1"}])


def test_texts_are_told_apart_by_what_is_read_of_them() -> None:
    batches = [RandomBatches(64, 16, 8, seed) for seed in (0, 0, 1)]
    names = [text_digest(batch, 8) for batch in batches]
    assert names[0] == names[1] != names[2]


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(InputError, match=r"--kernels: got fusd; .*nearest: fused"):
        TrainSettings(kernels="fusd")


def test_marks_are_timed_only_where_that_is_asked() -> None:
    progress = Progress()
    progress.mark("before")
    with progress.timed() as times_ns:
        progress.mark("pass F 0 0")
        progress.mark("pass B 0 0")
    progress.mark("after")
    assert len(times_ns) == 4
    assert times_ns == sorted(times_ns)
    assert progress.times_ns is None
    assert progress.count == 4


def _memory() -> StepMemory:
    start = 1_700_000_000_000_000_000
    changes = [
        MemoryChange(100, "resident", 100, 1, start - 5_000_000),
        MemoryChange(50, "aten.mm", 150, 2, start + 10_000_000),
        MemoryChange(-50, "free", 100, 2, start + 60_000_000),
    ]
    marks = [start, start + 20_000_000, start + 100_000_000]
    return StepMemory(150, None, cpu_snapshot(changes), marks)


def test_a_curve_is_stretched_between_the_passes_of_two_steps() -> None:
    memory = _memory()
    begin = 1_800_000_000_000_000_000
    curve = memory.curve_on([begin, begin + 2_000, begin + 10_000])
    assert [size for _, size in curve] == [100, 150, 100]
    assert [when - begin for when, _ in curve] == [0, 1_000, 6_000]


def test_allocated_bytes_are_drawn_beside_the_times() -> None:
    memory = _memory()
    begin = 1_800_000_000_000_000_000
    segment = Segment(begin, begin + 10_000, "matmul", "mm", "F 0 0")
    trace = RankTrace((segment,), {"F 0 0 to 1": begin + 5})
    with_memory = RankTrace(
        trace.segments,
        trace.sent_ns,
        tuple(memory.curve_on([begin, begin + 2_000, begin + 10_000])),
    )
    again = RankTrace.from_document(with_memory.to_document())
    assert again == with_memory
    assert again.shifted(7).shifted(-7) == again
    timeline = measured_timeline([again.shifted(123)])
    assert timeline.peak(0) == 150
    (counter,) = timeline.counters
    assert counter.points[-1] == (pytest.approx(6e-6), 100)
    assert measured_timeline([trace]).counters == ()


def test_thinning_keeps_the_peak_and_the_end() -> None:
    points = [(float(n), n * (997 - n) % 1009) for n in range(1000)]
    found = thinned(points, 50)
    assert len(found) <= 50
    assert max(size for _, size in found) == max(size for _, size in points)
    assert found[-1] == points[-1]
    assert thinned(points[:10], 50) == points[:10]


def test_error_output_is_searched_for_a_line(tmp_path: Path) -> None:
    from shardwright.executor.launch.process import WorkerProcess

    worker = object.__new__(WorkerProcess)
    worker.errors = tmp_path / "rank0.err"
    assert worker.error_line(NCCL_TIMEOUT) == ""
    worker.errors.write_text(f"noise\n[Rank 0]  {NCCL_TIMEOUT}: x\n" + "frame\n" * 1000)
    assert worker.error_line(NCCL_TIMEOUT) == f"[Rank 0] {NCCL_TIMEOUT}: x"
    assert worker.error_tail() == "frame | frame | frame"
