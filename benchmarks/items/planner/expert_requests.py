"""Answers of ``plan`` against what an expert would run, for forty requests.

Each request is asked as a person would type it, preferences left as they are, and the expert's
plan is priced by ``plan simulate`` for the same stack. The answer stands if its stack can run it,
and it is the expert's plan, or within 1 % of its seconds and no more complex (distinct strategies,
then kinds of parallelism), or faster by more than 1 %. What a stack can run is read from
``stack_rules``, which is not the catalogue that the planner reads. Both plans have the same prices,
so that nothing here says whether those are right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.processes import Ran, plan_command, ran
from harness.shapes import PLANNING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from published.expert_judge import Priced, judge
from published.expert_requests import KINDS, SUBJECTS, Request, expert_requests
from published.stack_rules import stack_faults

from shardwright.api.views.report_text import shape_text
from shardwright.spec.plan.plan import load_plan

DRAWN = 10
"""Requests of the short form."""
COLUMNS = ("request", "stack", "expert's plan", "s", "answer", "s", "verdict", "search s")


def run(work: Work) -> Evidence:
    """Ask for every request, as its own process, and judge the answers."""
    work.spreads = True
    requests = {request.name: request for request in expert_requests()}
    names = work.sample(list(requests), DRAWN, 2)
    pieces = work.pieces(names, answered)
    asked = [requests[name] for name in names]
    lines = [_line(*pair) for pair in zip(asked, pieces, strict=True)]
    return Evidence(
        rows=_rows(asked, pieces),
        tables=[Table(title="Every request", columns=COLUMNS, rows=lines)],
    )


def answered(name: str) -> dict[str, Any]:
    """The answer to a request of this name beside the expert's plan, judged."""
    (request,) = (request for request in expert_requests() if request.name == name)
    answer, simulated = _asked(request.plan_words), _asked(["simulate", *request.simulate_words])
    if simulated.code:
        return {"passes": False, "why": f"the expert's plan: {simulated.err.strip()}"}
    expert = _priced(simulated)
    piece = {"expert": shape_text(expert.plan), "expert_s": expert.step_time_s}
    if not json.loads(simulated.out)["prediction"]["feasible"]:
        return {**piece, "passes": False, "why": "the expert's plan does not fit"}
    if answer.code:
        return {**piece, "passes": False, "why": f"no answer: {answer.err.strip()}"}
    ours = _priced(answer)
    verdict = judge(ours, expert, stack_faults(ours.plan, request.stack))
    return {
        **piece,
        "answer": shape_text(ours.plan),
        "answer_s": ours.step_time_s,
        "passes": verdict.passes,
        "why": verdict.why,
        "search_s": json.loads(answer.out)["search"]["seconds"],
    }


def _asked(words: Sequence[str]) -> Ran:
    return ran([*plan_command(), *words, "--json", "-"])


def _priced(done: Ran) -> Priced:
    seconds = json.loads(done.out)["prediction"]["step_time_s"]
    return Priced(plan=load_plan(done.out, "plan"), step_time_s=seconds)


def _rows(asked: Sequence[Request], pieces: Sequence[dict[str, Any]]) -> list[Row]:
    """How many answers stand, in all and by kind and subject."""
    pairs = list(zip(asked, pieces, strict=True))
    failed = [request.name for request, piece in pairs if not piece["passes"]]
    stand = len(pairs) - len(failed)
    rows = [
        judged(
            "answers that an expert would give",
            f"{stand} of {len(pairs)}" + (f"; not {'; '.join(failed)}" if failed else ""),
            "all of them",
            not failed,
            stand=stand,
            asked=len(pairs),
        )
    ]
    for part in (*KINDS, *SUBJECTS):
        own = [piece["passes"] for request, piece in pairs if part in (request.kind, request.about)]
        if own:
            rows.append(reported(f"of {part}", f"{sum(own)} of {len(own)}"))
    return rows


def _line(request: Request, piece: dict[str, Any]) -> list[str]:
    seconds = [f"{piece[name]:.4g}" if name in piece else "" for name in ("expert_s", "answer_s")]
    return [
        request.name,
        request.stack.partition(":")[0],
        piece.get("expert", ""),
        seconds[0],
        piece.get("answer", ""),
        seconds[1],
        f"{'PASS' if piece['passes'] else 'FAIL'}: {piece['why']}",
        f"{piece['search_s']:.1f}" if "search_s" in piece else "",
    ]


ITEM = Item(
    name="expert_requests",
    shows="Whether plan answers what an expert who trains models would run, or better.",
    target="every one of 10 of 40 requests, drawn.",
    full_target="every one of 40 requests.",
    run=run,
    reads=(
        *PLANNING,
        "api",
        "benchmarks/harness/processes.py",
        "tests/support/published/expert_requests.py",
        "tests/support/published/expert_judge.py",
        "tests/support/published/layer_choices.py",
        "tests/support/published/stack_rules.py",
    ),
)
