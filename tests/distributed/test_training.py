"""Training on real ranks: losses, clipping, text, what is measured, traces, torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from generators.plan_cases import GPT2, Case, Sizes, sharded
from ranks.rank_pools import RankPool

from shardwright.executor.engine.optimizer_step import AdamWOptions
from shardwright.executor.launch.pool import TRAIN_JOB, run_plan
from shardwright.executor.tracing.timeline import critical_rank, measured_breakdown
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import RunError
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.report import BREAKDOWN_TERMS
from shardwright.spec.report.timeline import from_perfetto
from shardwright.spec.strategy import LayerStrategy

TEXT = Sizes(vocab=320, hidden=64, ffn=160)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")


def train(pool: RankPool, case: Case, **settings: Any) -> dict[str, Any]:
    payload = {"plan": case.plan().to_document(), "random_tokens": True, **settings}
    results = pool.run(TRAIN_JOB, payload)
    assert results[1:] == [None] * (pool.ranks - 1)
    result: dict[str, Any] = results[0]
    return result


def test_losses_fall_on_real_text_in_bf16(four_ranks: RankPool) -> None:
    case = Case(
        name="bf16",
        sizes=TEXT,
        dtype="bf16",
        seq_len=64,
        global_batch=16,
        stages=2,
        strategies=sharded("zero2", 2),
    )
    result = train(four_ranks, case, steps=30, random_tokens=False, follow_bytes=False)
    losses = result["measured"]["losses"]
    assert losses[0] == pytest.approx(5.77, abs=0.1)  # ln 320: nothing is known yet
    assert sum(losses[-3:]) / 3 < losses[0] - 1.0


@pytest.mark.parametrize(
    "case",
    [
        Case(name="zero3", strategies=sharded("zero3", 4)),
        Case(name="tp2 sp qwen3", sizes=Sizes(qk_norm=True), strategies=TP2_SP),
        Case(name="tied pipeline", sizes=GPT2, stages=2, micro_batch=2),
        Case(name="hsdp", strategies=sharded("hsdp:2", 4)),
        Case(name="tied in one stage", sizes=GPT2, strategies=sharded("zero1", 4)),
    ],
    ids=lambda c: c.name,
)
def test_gradient_norms_and_clipped_updates_equal_the_reference(
    four_ranks: RankPool, case: Case
) -> None:
    """A clip far below the norm decides every update, so the weights would drift apart."""
    case = replace(case, clip=0.05)
    payload = {"plan": case.plan().to_document(), "steps": 3}
    found = four_ranks.run("ranks.rank_jobs:norms", payload)[0]
    assert min(found["reference_norms"]) > 10 * 0.05
    assert found["norms"] == pytest.approx(found["reference_norms"], rel=2e-6)
    # Adam divides by the root of tiny squares, so rounding grows; a hundredth of one update
    assert found["weight_difference"] < 0.01 * AdamWOptions().learning_rate.peak


def test_what_a_run_reports(four_ranks: RankPool) -> None:
    case = Case(name="report", sizes=TEXT, seq_len=64, stages=2, strategies=sharded("zero3", 2))
    plan = case.plan()
    events: list[tuple[int, dict[str, Any]]] = []
    payload = {"plan": plan.to_document(), "steps": 5, "seed": 7}
    result = four_ranks.run(TRAIN_JOB, payload, on_event=lambda r, e: events.append((r, e)))[0]
    measured = result["measured"]
    assert result["plan_hash"] == plan.hash
    assert [(rank, event["step"]) for rank, event in events] == [(0, n) for n in range(1, 6)]
    assert [event["loss"] for _, event in events] == measured["losses"]
    times = [event["time_s"] for _, event in events]
    assert measured["step_time_s"] == sorted(times[2:])[1]
    per_device = 8 * 64 / measured["step_time_s"] / 4
    assert measured["tokens_per_s_per_device"] == pytest.approx(per_device)
    assert len(measured["allocated_bytes"]) == 2
    parameters = plan.model.param_count() * 4
    assert all(parameters // 8 < size < 20 * parameters for size in measured["allocated_bytes"])
    assert len(result["rss_growth_bytes"]) == 4
    json.dumps(result, allow_nan=False)


def test_initial_weights_and_data_do_not_depend_on_the_plan(four_ranks: RankPool) -> None:
    losses = {
        case.name: train(four_ranks, case, steps=1, follow_bytes=False)["measured"]["losses"][0]
        for case in (
            Case(name="zero3", strategies=sharded("zero3", 4)),
            Case(name="tp2", strategies=LayerStrategy(tp=2)),
            Case(name="pipeline", stages=4, micro_batch=1),
        )
    }
    assert max(losses.values()) - min(losses.values()) < 1e-5
    other = train(four_ranks, Case(name="other seed"), steps=1, seed=1, follow_bytes=False)
    assert abs(other["measured"]["losses"][0] - losses["tp2"]) > 1e-4


@pytest.mark.parametrize(
    ("case", "terms"),
    [
        (Case(name="pipeline", stages=2, micro_batch=2), {"bubble", "exposed_pp"}),
        (
            Case(name="zero3 full", strategies=sharded("zero3", 4, recompute="full")),
            {"exposed_dp", "recompute"},
        ),
        (Case(name="tp2 sp", strategies=TP2_SP), {"exposed_tp"}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_traced_step_adds_up(
    four_ranks: RankPool, case: Case, terms: set[str], tmp_path: Path
) -> None:
    case = replace(case, sizes=Sizes(hidden=64, ffn=160, vocab=512), seq_len=64)
    where = tmp_path / "trace.json"
    settings = {"steps": 2, "follow_bytes": False, "trace_file": str(where)}
    traced = train(four_ranks, case, **settings)["traced"]
    timeline = from_perfetto(where.read_text(), str(where))
    assert timeline.origin == "measured"
    assert {span.stream.rank for span in timeline.spans} == {0, 1, 2, 3}
    assert timeline.overlapping() == []
    always = {"matmul", "attention", "elementwise", "optimizer", "host"}
    for rank, breakdown in enumerate(traced["breakdown_by_rank_s"]):
        assert set(breakdown) == set(BREAKDOWN_TERMS)
        assert sum(breakdown.values()) == pytest.approx(traced["step_time_s"], rel=1e-6)
        assert abs(breakdown["unattributed"]) <= 0.01 * traced["step_time_s"]
        assert {term for term in always if breakdown[term] <= 0} == set()
        again = measured_breakdown(timeline, rank)
        assert again == pytest.approx(breakdown, abs=1e-6)
    anywhere = {t for b in traced["breakdown_by_rank_s"] for t in terms if b[t] > 0}
    assert anywhere == terms
    assert traced["critical_rank"] == critical_rank(timeline)
    assert traced["breakdown_s"] == traced["breakdown_by_rank_s"][traced["critical_rank"]]


def test_a_trace_tells_the_parts_of_a_backward(four_ranks: RankPool, tmp_path: Path) -> None:
    case = Case(
        name="zbv",
        stages=2,
        chunks=2,
        kind="zbv",
        micro_batch=2,
        global_batch=4,
        strategies=sharded("zero2", 2),
    )
    where = tmp_path / "trace.json"
    traced = train(four_ranks, case, steps=1, follow_bytes=False, trace_file=str(where))["traced"]
    timeline = from_perfetto(where.read_text(), str(where))
    for rank, breakdown in enumerate(traced["breakdown_by_rank_s"]):
        assert sum(breakdown.values()) == pytest.approx(traced["step_time_s"], rel=1e-6)
        terms: dict[str, set[str]] = {}
        for span in timeline.spans:
            if span.stream.rank == rank and "pass" in span.details:
                terms.setdefault(str(span.details["pass"]), set()).add(span.term)
        passes = {f"pass {word} {c} {m}" for word in "FBW" for c in (0, 1) for m in (0, 1)}
        assert set(terms) - {"update"} == passes
        for name in passes:
            reduces = "exposed_dp" in terms[name]
            assert reduces == (name[5] == "W" or name[5] + name[-1] == "F0")  # or gathers
            assert "matmul" in terms[name]
            assert "bubble" not in terms[name] or name[5] != "W"


def without_a_device(plan: Plan) -> Plan:
    group = replace(plan.cluster.groups[0], device="H100-SXM-80GB", node="HGX-H100")
    return replace(plan, cluster=replace(plan.cluster, groups=(group,)))


def test_a_device_that_is_not_here_is_named() -> None:
    plan = without_a_device(Case(name="gpu", ranks=1).plan())
    with pytest.raises(RunError, match=r"runs on H100-SXM-80GB, but this machine has") as caught:
        run_plan(plan, {"steps": 1})
    assert caught.value.exit_code == 4


def test_a_step_that_overflows_in_fp16_changes_nothing_and_halves_the_scale(
    four_ranks: RankPool,
) -> None:
    plan = Case(name="fp16", dtype="fp16", strategies=sharded("zero2", 4)).plan()
    found = four_ranks.run("ranks.rank_jobs:overflow", {"plan": plan.to_document()})
    assert all(one == found[0] for one in found)
    assert found[0]["skipped"] == [True, False]
    assert found[0]["scales"] == [2.0**16, 2.0**15, 2.0**15]
    assert found[0]["moved"] == [False, True]


def test_a_cosine_learning_rate_takes_the_reference_along(four_ranks: RankPool) -> None:
    rate = {"decay": "cosine", "peak": 1e-2, "warmup": 2, "floor": 1e-3}
    plan = Case(name="cosine", strategies=sharded("zero1", 4)).plan()
    payload = {"plan": plan.to_document(), "steps": 6, "random_tokens": True, "verify": True}
    with_rate = {**payload, "adamw": {"learning_rate": rate}}
    varied, constant = (four_ranks.run(TRAIN_JOB, p)[0] for p in (with_rate, payload))
    assert varied["verify"]["max_rel_loss_diff"] <= 1e-5
    assert varied["measured"]["losses"][1:] != constant["measured"]["losses"][1:]


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Python module as a person would, away from the checkout."""

    def start(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", **variables}
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return start


def test_torchrun(started: Callable[..., Any], tmp_path: Path) -> None:
    plan = Case(name="torchrun", ranks=2, stages=2, micro_batch=2, sizes=TEXT, seq_len=32).plan()
    (tmp_path / "plan.json").write_text(canonical_json(plan))
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    job = ("shardwright.executor.worker", "plan.json", "--steps", "3", "--verify")
    files = ("--json", "result.json", "--trace", "trace.json")
    done = started(*launcher, *job, *files)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["step", str(n)] for n in (1, 2, 3)
    ]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["verify"]["max_rel_grad_diff"] <= result["verify"]["bounds"]["gradient"]
    assert from_perfetto((tmp_path / "trace.json").read_text(), "trace").step_time_s > 0


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "says"),
    [
        (["plan.json"], {}, 2, "environment: got no RANK; allowed: ranks started by torchrun"),
        ([], {}, 2, "PLAN.json: got nothing; allowed: a plan file"),
        (["plan.json", "--steps", "x"], {}, 2, "worker: argument --steps: invalid int value"),
        (["absent.json"], {"WORLD_SIZE": "2"}, 2, "absent.json: got no such file"),
        (["plan.json"], {"WORLD_SIZE": "3"}, 4, "the plan runs on 2 ranks, but 3 were started"),
    ],
)
def test_one_clear_line(
    arguments: list[str],
    variables: dict[str, str],
    code: int,
    says: str,
    started: Callable[..., Any],
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.json").write_text(canonical_json(Case(name="two", ranks=2).plan()))
    if variables:
        variables |= {"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    done = started("shardwright.executor.worker", *arguments, **variables)
    assert done.returncode == code
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
