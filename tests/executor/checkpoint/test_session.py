"""A world of one rank in this process: saving beside a run, refusals, and states of techniques."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from generators.plan_cases import PLAIN, Case
from ranks.checkpoint_files import RUN, flip, two_ranks, write
from ranks.checkpoint_matrix import SIZES, Cell
from toys.census_run import RUNS as CENSUS
from toys.census_value import NAME as CENSUS_NAME
from toys.census_value import GradientCensus

from shardwright.costmodel.checkpoint import stage_bytes
from shardwright.executor.checkpoint import saver as saving
from shardwright.executor.checkpoint import session
from shardwright.executor.checkpoint.loader import FoundCheckpoint, load_slices, newest_valid
from shardwright.executor.checkpoint.manifest import MANIFEST, RunFacts, read_manifest
from shardwright.executor.checkpoint.saver import Saver
from shardwright.executor.checkpoint.settings import CheckpointSettings
from shardwright.executor.checkpoint.storage.folders import step_folders
from shardwright.executor.checkpoint.tensor_offsets import state_slice
from shardwright.executor.checkpoint.tensor_slices import TensorSlice
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.technique import NamedState, Placement, RunTechniques
from shardwright.executor.techniques import SHIPPED
from shardwright.executor.train import job
from shardwright.executor.train.job import train
from shardwright.spec.errors import InputError, RunError
from shardwright.spec.parallel.rank_groups import RankGroup
from shardwright.spec.plan.plan import Plan
from shardwright.spec.technique_values import with_value

CPU = torch.device("cpu")
PLAN = Cell("dp", 1).plan()
Trained = tuple[dict[str, Any], list[str]]


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def go(alone: None) -> Callable[..., Trained]:
    """Trains in this process; the result and what was said."""

    def run(
        plan: Plan,
        steps: int,
        techniques: RunTechniques = SHIPPED,
        seed: int = 0,
        verify: bool = False,
        **asked: Any,
    ) -> Trained:
        said: list[dict[str, Any]] = []
        context = RankContext(0, 1, CPU, 60.0, said.append)
        settings: dict[str, Any] = {
            "steps": steps,
            "seed": seed,
            "random_tokens": True,
            "follow_bytes": False,
        }
        settings |= {"verify": verify, "checkpoint": asked}
        payload = {**settings, "plan": plan.to_document()}
        result = train(context, payload, techniques)
        assert result is not None
        return result, [event["text"] for event in said if event["event"] == "note"]

    return run


def state() -> dict[str, TensorSlice]:
    return {"model.a": TensorSlice.unsplit(torch.zeros(4))}


def saver(root: Path, **changed: Any) -> Saver:
    given = {"keep": 3, "run": RUN, "rank": 0, "device": CPU, "wait": False, **changed}
    return Saver(root, **given)


def test_a_save_waits_for_a_copy_only(
    alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write begins when we let it; what the next step changes is not in it."""
    may_write, writes = threading.Event(), saving.CheckpointWriter.write_data

    def late(self: Any, plan: Any, planner: Any) -> Any:
        assert may_write.wait(30)
        return writes(self, plan, planner)

    monkeypatch.setattr(saving.CheckpointWriter, "write_data", late)
    parts, own = state(), saver(tmp_path)
    own.save(5, parts)
    parts["model.a"].tensor.fill_(7)
    assert not own.is_written()
    assert step_folders(tmp_path) == []
    may_write.set()
    own.wait_written()
    (folder,) = step_folders(tmp_path)
    assert own.committed == [5]
    target = TensorSlice.unsplit(torch.ones(4))
    load_slices(FoundCheckpoint(folder, read_manifest(folder)), {"model.a": target})
    assert target.tensor.tolist() == [0.0] * 4


def test_one_write_is_under_way_and_plans_are_made_once(
    alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[object] = []
    monkeypatch.setattr(
        saving, "plan_saves", lambda every, plan=saving.plan_saves: planned.append(1) or plan(every)
    )
    own = saver(tmp_path, keep=2)
    for step in (1, 2, 3):
        own.save(step, state())
        assert own.committed == list(range(1, step))
    own.wait_written()
    assert len(planned) == 1
    assert [path.name[-1] for path in step_folders(tmp_path)] == ["3", "2"]
    own.save(4, {**state(), "model.b": TensorSlice.unsplit(torch.zeros(2))})
    own.wait_written()
    assert len(planned) == 2


def test_an_error_of_a_write_is_one_of_the_run(
    alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    own = saver(tmp_path)
    own.save(1, state())
    own.wait_written()
    monkeypatch.setattr("shardwright.executor.checkpoint.writer.write_slices", full)
    own.save(2, state())
    with pytest.raises(
        RunError, match=r"^the checkpoint of step 2: rank 0 could not write it: .*No space left"
    ):
        own.save(3, state())
    assert [path.name for path in step_folders(tmp_path)] == ["step-00000001"]


def test_what_an_ended_run_left_is_swept(alone: None, tmp_path: Path) -> None:
    (tmp_path / ".step-00000004.0badf00d").mkdir(parents=True)
    own = saver(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    own.close()


def test_the_newest_good_one_is_found(alone: None, tmp_path: Path) -> None:
    folders = [write(tmp_path, step, two_ranks()) for step in (10, 20, 30)]
    said: list[str] = []
    assert newest_valid(tmp_path, 0, CPU, said.append).folder == folders[2]
    assert said == []
    flip(folders[2] / MANIFEST, 100, 0)
    part = read_manifest(folders[1]).tensors["model.vector"].parts[0]
    flip(folders[1] / part.file, part.first_byte, 7)
    assert newest_valid(tmp_path, 0, CPU, said.append).folder == folders[0]
    assert [text.partition(" is damaged ")[0] for text in said] == [
        "checkpoint step-00000030",
        "checkpoint step-00000020",
    ]
    assert f"({part.file}, model.vector: " in said[1]
    with pytest.raises(RunError, match=r"^no good checkpoint in .*step-00000020"):
        newest_valid(folders[1], 0, CPU, said.append)  # one that is named has none before it


def test_a_resumed_run_is_the_same_run(go: Callable[..., Trained], tmp_path: Path) -> None:
    whole, _ = go(PLAN, 5, folder=str(tmp_path), every=2)
    assert whole["checkpoint"]["saved"] == {"folder": str(tmp_path), "steps": [2, 4, 5]}
    again, said = go(PLAN, 5, resume=str(tmp_path / "step-00000002"))
    expected = whole["measured"]["losses"][2:]
    assert [x.hex() for x in again["measured"]["losses"]] == [x.hex() for x in expected]
    assert said == [f"going on after step 2 from {tmp_path / 'step-00000002'}"]


def test_verification_finds_the_checkpoint_that_it_starts_from(
    go: Callable[..., Trained], tmp_path: Path
) -> None:
    root = str(tmp_path)
    go(PLAN, 2, folder=root)
    result, _ = go(PLAN, 4, verify=True, folder=root, resume=root, every=1, keep=1)
    assert result["verify"]["max_rel_loss_diff"] <= result["verify"]["bounds"]["loss"]
    assert [path.name[-1] for path in step_folders(tmp_path)] == ["4", "2"]


def test_what_would_be_another_training_is_refused(
    go: Callable[..., Trained], tmp_path: Path
) -> None:
    go(PLAN, 2, folder=str(tmp_path))
    sizes = replace(SIZES, hidden=24)
    other = Case(name="x", sizes=sizes, ranks=1, global_batch=48, micro_batch=24, seq_len=24)
    longer = replace(other, sizes=SIZES, seq_len=32)
    for plan, steps, seed, says in (
        (PLAN, 2, 0, r"^--steps: got 2; allowed: more than 2, the step of step-.*nearest: 3"),
        (PLAN, 4, 1, r"^--seed: got 1; allowed: 0, as in the checkpoint to resume"),
        (
            other.plan(),
            4,
            0,
            r"^model: got hidden 24, .*; allowed: hidden 48, .*, as in the ch",
        ),
        (longer.plan(), 4, 0, r"^--seq-len: got 32; allowed: 24, as in"),
    ):
        with pytest.raises(InputError, match=says):
            go(plan, steps, seed=seed, resume=str(tmp_path))


def test_another_model_is_told_by_its_fields(
    go: Callable[..., Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest of an earlier version holds no model, and is told by its hashes."""
    go(PLAN, 2, folder=str(tmp_path))
    sizes = replace(SIZES, blocks=4, ffn=192)
    case = Case(name="x", sizes=sizes, ranks=1, global_batch=48, micro_batch=24, seq_len=24)
    given = r"^model: got block mlp.ffn 192, block count 4; allowed: "
    with pytest.raises(InputError, match=given + "block mlp.ffn 96, block count 6, as in"):
        go(case.plan(), 4, resume=str(tmp_path))
    facts = session.run_facts
    monkeypatch.setattr(
        job, "run_facts", lambda *given: replace(facts(*given), model_document=None)
    )
    with pytest.raises(InputError, match=r"^model: got sha256:.*; allowed: sha256:.*, as in"):
        go(case.plan(), 4, resume=str(tmp_path))
    assert "model_document" in (newest(tmp_path) / MANIFEST).read_text(encoding="utf-8")
    document = {**asdict(RUN)}
    del document["model_document"]
    assert RunFacts(**document) == RUN


def newest(folder: Path) -> Path:
    return step_folders(folder)[0]


def test_lion_is_run_verified_and_resumed(go: Callable[..., Trained], tmp_path: Path) -> None:
    """One moment a parameter, and none of AdamW's states."""
    plan = replace(PLAN, workloads={"main": replace(PLAN.workload, optimizer="lion")})
    whole, _ = go(plan, 4)
    go(plan, 2, folder=str(tmp_path))
    states = {
        name.removeprefix("optimizer.").partition(".")[0]
        for name in read_manifest(newest(tmp_path)).tensors
        if name.startswith("optimizer.")
    }
    assert states == {"exp_avg"}
    result, _ = go(plan, 4, verify=True, resume=str(tmp_path))
    losses = result["measured"]["losses"]
    assert losses == pytest.approx(whole["measured"]["losses"][2:], rel=1e-6)
    assert result["verify"]["max_rel_loss_diff"] <= result["verify"]["bounds"]["loss"]
    with pytest.raises(InputError, match=r"^--optimizer: got adamw; allowed: lion, as in"):
        go(PLAN, 4, resume=str(tmp_path))


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    here = str(tmp_path / "here")
    for asked, says in (
        ({"every": 3}, r"^--every: got 3; allowed: with --checkpoint"),
        ({"folder": here, "every": 0}, r"^--every: got 0; allowed: at least 1"),
        ({"folder": here, "keep": 0}, r"^--keep: got 0; allowed: at least 1"),
    ):
        with pytest.raises(InputError, match=says):
            CheckpointSettings(**asked)
    assert CheckpointSettings(folder=here).source is None
    assert CheckpointSettings(folder=here, restarted=True).source is None
    write(tmp_path / "here", 20, two_ranks())
    for asked in ({}, {"resume": str(tmp_path / "there")}):
        with pytest.raises(InputError, match=r"^--checkpoint: .* or --resume .*it has step 20"):
            _ = CheckpointSettings(folder=here, **asked).source
    assert CheckpointSettings(folder=here, restarted=True, resume="else").source == Path(here)
    for resume in (here, f"{here}/step-00000020"):
        assert CheckpointSettings(folder=here, resume=resume).source == Path(resume)


def census(mode: str) -> Plan:
    strategy = with_value(PLAIN, CENSUS_NAME, GradientCensus(mode=mode))  # type: ignore[arg-type]
    case = Case(
        name=mode, sizes=SIZES, ranks=1, strategies=strategy, techniques=CENSUS.values,
        global_batch=48, micro_batch=24, seq_len=24,
    )  # fmt: skip
    return case.plan()


@pytest.mark.parametrize("mode", ["each", "held"])
def test_what_techniques_keep_is_kept(
    go: Callable[..., Trained], tmp_path: Path, mode: str
) -> None:
    plan = census(mode)
    go(plan, 4, CENSUS, folder=str(tmp_path), every=2)
    go(plan, 4, CENSUS, folder=str(tmp_path / "again"), resume=str(tmp_path / "step-00000002"))
    first, again = (
        {
            name: [part.digest for part in tensor.parts]
            for name, tensor in read_manifest(root / "step-00000004").tensors.items()
        }
        for root in (tmp_path, tmp_path / "again")
    )
    assert first == again
    assert sum(name.startswith(f"techniques.{CENSUS_NAME}.") for name in first) >= SIZES.blocks


def test_techniques_that_come_and_go(go: Callable[..., Trained], tmp_path: Path) -> None:
    go(census("each"), 2, CENSUS, folder=str(tmp_path / "with"))
    _, said = go(PLAN, 3, CENSUS, resume=str(tmp_path / "with"))
    assert said[1:] == [
        f"what {CENSUS_NAME} kept is not taken over: the plan does not hold it",
    ]
    go(PLAN, 2, CENSUS, folder=str(tmp_path / "without"))
    with pytest.raises(InputError, match=r"^--resume: got no techniques\.gradient_census\.1\.sum"):
        go(census("each"), 3, CENSUS, resume=str(tmp_path / "without"))
    go(census("held"), 2, CENSUS, folder=str(tmp_path / "own"))
    elsewhere = replace(
        census("held"),
        programs=(
            replace(
                census("held").program,
                schedule=replace(census("held").program.schedule, micro_batch=12, microbatches=4),
            ),
        ),
    )
    with pytest.raises(InputError, match=r"under another plan; allowed: the plan that it was sav"):
        go(elsewhere, 3, CENSUS, resume=str(tmp_path / "own"))


class Book:
    """Rank 5 of 8 in one stage."""

    rank = local_rank = 5
    stage_ranks = 8


@pytest.mark.parametrize(
    ("placement", "name", "whole", "offsets"),
    [
        (Placement(kind="own"), "s#rank5", (2, 3), (0, 0)),
        (Placement(kind="replicated"), "s", (2, 3), (0, 0)),
        (Placement(kind="replicated", group=RankGroup(8, 1)), "s", (2, 3), (0, 0)),
        (Placement(kind="replicated", group=RankGroup(2, 1)), "s#group2of4", (2, 3), (0, 0)),
        (Placement(kind="split"), "s", (16, 3), (10, 0)),
        (Placement(kind="split", dim=1), "s", (2, 24), (0, 15)),
        (Placement(kind="split", group=RankGroup(4, 2)), "s#group1of2", (8, 3), (4, 0)),
    ],
)
def test_where_a_technique_s_state_lies(
    placement: Placement, name: str, whole: tuple[int, ...], offsets: tuple[int, ...]
) -> None:
    kept = NamedState(tensor=torch.zeros(2, 3), placement=placement)
    found, part = state_slice("s", kept, Book(), {})  # type: ignore[arg-type]
    assert (found, part.full_shape, part.offsets) == (name, whole, offsets)


def test_a_state_of_a_parameter_that_is_not_here() -> None:
    kept = NamedState(
        tensor=torch.zeros(2), placement=Placement(kind="parameter", parameter="layers.1.x")
    )
    with pytest.raises(InputError, match=r"^state s: .*this rank's part of layers\.1\.x"):
        state_slice("s", kept, Book(), {})  # type: ignore[arg-type]


def test_times_and_bytes_are_reported_beside_the_price(go: Any, tmp_path: Path) -> None:
    result, _ = go(PLAN, 2, folder=str(tmp_path), every=1)
    measured = result["checkpoint"]["measured"]
    assert 0 < measured["stall_s"] < measured["end_to_end_s"]
    manifest = read_manifest(tmp_path / "step-00000002")
    stored = {
        name: sum(part.bytes for part in tensor.parts) for name, tensor in manifest.tensors.items()
    }
    assert measured["bytes"] == measured["rank_bytes"] == sum(stored.values())
    values = [size for name, size in stored.items() if name.startswith(("model.", "optimizer.exp"))]
    assert sum(values) == sum(row.unique for row in stage_bytes(PLAN))
    resumed, _ = go(PLAN, 3, folder=str(tmp_path), resume=str(tmp_path))
    assert resumed["checkpoint"]["measured"]["load_s"] > 0
