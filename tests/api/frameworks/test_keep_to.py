"""Questions kept to what a framework can say, against every plan that it can."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from oracles.framework_spaces import check_space

import shardwright as sw
from shardwright.api.client.requests import plan_request
from shardwright.api.frameworks.keep_to import kept_to
from shardwright.api.frameworks.shipped import FRAMEWORKS, WRITTEN
from shardwright.api.planning.solved_report import solved_report
from shardwright.api.problem.pins import resolve_pins
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.server.compute.operations import run_operation
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.program_search import best_plan
from shardwright.spec.errors import InputError
from shardwright.spec.rules.stack_limits import stack_plan_violations

QUESTION = Inputs(model="gpt2", cluster="1x2xH100-80GB", global_batch=4, seq_len=512)
PINS = ("pp=1", "tp=1", "cp=1", "recompute=none", "micro-batch=1")


@pytest.mark.evidence
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WRITTEN)
def test_the_best_plan_is_found_in_fifteen_spaces(name):
    source = random.Random(f"for {name}")
    counts = [check_space(name, source.randrange(10**6)) for _ in range(15)]
    assert min(counts) > 20


def test_the_answer_is_inside_and_the_free_plan_is_the_best_without():
    problem, free = kept_to("megatron", QUESTION)
    options = SolveOptions(pins=resolve_pins(PINS, problem, False), top=0)
    report = solved_report(problem, options, free)
    framework = next(item for item in FRAMEWORKS if item.name == "megatron")
    assert stack_plan_violations(report.plan, framework.narrow(problem.stack)) == []
    assert report.common_stack is not None
    alone = best_plan(resolve(QUESTION), options.for_subproblem(None))
    assert report.common_stack.plan == alone[0]
    assert report.common_stack.prediction.step_time_s == pytest.approx(
        alone[1].step_time_s, rel=1e-9
    )


def test_other_stacks_and_unwritten_frameworks_are_refused():
    with pytest.raises(InputError, match="--stack"):
        kept_to("megatron", replace(QUESTION, stack="torchtitan"))
    with pytest.raises(InputError, match="--for"):
        kept_to("axolotl", QUESTION)
    kept, _ = kept_to("megatron", replace(QUESTION, stack="megatron:grad_overlap=on"))
    assert kept.stack.name == "megatron:grad_overlap=on"


def test_the_service_and_python_answer_as_the_command_line():
    problem, free = kept_to("megatron", QUESTION)
    options = SolveOptions(pins=resolve_pins(PINS, problem, False), top=0)
    report = solved_report(problem, options, free)
    how = {"global_batch": 4, "seq_len": 512, "pins": list(PINS), "top": 0, "for_": "megatron"}
    handle = sw.plan("gpt2", QUESTION.cluster, **how)
    body, _, _ = plan_request("gpt2", QUESTION.cluster, how)
    assert body["constraints"]["framework"] == "megatron"
    status, answer = run_operation("plan", json.dumps(body).encode(), 60)
    assert status == 200
    documents = [handle.report.to_document(), json.loads(answer)]
    for name in ("plan", "common_stack"):
        expected = json.loads(json.dumps(report.to_document()[name]))
        assert [json.loads(json.dumps(document[name])) for document in documents] == [expected] * 2


@pytest.mark.parametrize("limits", [{"framework": "megatrn"}, {"framework": "axolotl"},
                                    {"framework": "megatron", "executable": True}])  # fmt: skip
def test_the_service_names_a_framework_that_it_cannot_keep_to(limits):
    body, _, _ = plan_request("gpt2", QUESTION.cluster, {"global_batch": 4, "seq_len": 512})
    asked = json.dumps({**body, "constraints": limits}).encode()
    status, answer = run_operation("check-plan", asked, 10)
    assert status == 422
    assert json.loads(answer)["errors"][0]["pointer"] == "/constraints/framework"


def test_python_names_the_argument():
    with pytest.raises(InputError, match="for_"):
        sw.plan("gpt2", QUESTION.cluster, global_batch=4, seq_len=512, for_="megatrn")
    with pytest.raises(InputError, match="executable"):
        sw.plan("gpt2", QUESTION.cluster, global_batch=4, for_="megatron", executable=True)
