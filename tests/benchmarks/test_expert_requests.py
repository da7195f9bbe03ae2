"""The requests of experts are complete, and every expert's plan fits and can be run."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest
from items.planner import expert_requests as item
from published.expert_requests import KINDS, SUBJECTS, Request, expert_requests
from published.layer_choices import distinct_strategies
from published.stack_rules import stack_faults

from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_plan import UniformStrategy, strategy_flags, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve

REQUESTS = expert_requests()
MOST_DEVICES = {"one box": 8, "tens": 99, "hundreds": 999, "thousands": 2**24}


def test_there_are_ten_of_each_kind_and_each_names_its_source() -> None:
    assert Counter(request.kind for request in REQUESTS) == dict.fromkeys(KINDS, 10)
    assert Counter(request.about for request in REQUESTS).keys() == set(SUBJECTS)
    assert min(Counter(request.about for request in REQUESTS).values()) >= 4
    assert len({request.name for request in REQUESTS}) == 40
    for request in REQUESTS:
        assert request.source.startswith("https://"), request.name
        assert request.why.endswith("."), request.name
        assert request.asked.keys() <= {field.name for field in fields(Inputs)}, request.name
        assert request.expert.keys() <= set(strategy_flags()), request.name


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_the_experts_plan_fits_and_its_stack_can_run_it(request_: Request) -> None:
    problem = resolve(Inputs(**request_.asked))
    plan, _ = uniform_plan(problem, UniformStrategy.from_flags(request_.expert))
    assert simulate_plan(plan, problem.stack, problem.measured, ()).report.prediction.feasible
    assert not stack_faults(plan, request_.stack)
    assert len(distinct_strategies(plan)) == 1
    devices = sum(group.device_count for group in problem.cluster.groups)
    kind = next(kind for kind, most in MOST_DEVICES.items() if devices <= most)
    assert kind == request_.kind


def test_words_are_those_of_the_commands() -> None:
    request = next(one for one in REQUESTS if one.name == "mistral-7b, one 4090, QLoRA")
    assert request.plan_words[:4] == ["--model", "mistral-7b", "--cluster", "1xRTX-4090-24GB"]
    assert request.simulate_words[-2:] == ["--micro-batch", "4"]


def test_rows_count_what_stands() -> None:
    pieces = [{"passes": number > 0, "why": "slower by 2.0%"} for number in range(2)]
    rows = item._rows(REQUESTS[:2], pieces)
    assert (rows[0].outcome, rows[0].values) == ("MISS", {"stand": 1, "asked": 2})
    assert [row.name for row in rows[1:]] == ["of one box", "of dense"]
    assert item._line(REQUESTS[0], pieces[0])[-2] == "FAIL: slower by 2.0%"
