"""``sw.Client``: what a service answers is what this process would have answered."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from service.services import Service, start_service, stop_service

import shardwright as sw
from shardwright.api.client.errors import error_of
from shardwright.api.client.jobs import Job
from shardwright.api.notebook.plan_handle import PlanHandle, SimulationHandle
from shardwright.api.python import WhatIfs
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.models.load import presets
from shardwright.spec.codec import dump_pretty
from shardwright.spec.errors import InfeasibleError, InputError, RunError

GPT2: dict[str, Any] = {"global_batch": 64, "seq_len": 1024}
SLOW: dict[str, Any] = {
    "model": "llama-3.1-405b", "cluster": "128x8xH100", "global_batch": 2048, "seq_len": 8192,
    "deadline_s": 300,
}  # fmt: skip
TYPED = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512, "name": "tiny"}


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[sw.Client]:
    with sw.Client(service.url) as made:
        yield made


@pytest.fixture(scope="module")
def both(client: sw.Client) -> tuple[PlanHandle, PlanHandle]:
    """One search, answered by the service and here."""
    return tuple(face.plan("gpt2", "8xH100", **GPT2) for face in (client, sw))  # type: ignore[return-value,attr-defined]


def test_a_search_is_the_same_search(both: tuple[PlanHandle, PlanHandle]) -> None:
    there, here = both
    assert isinstance(there, sw.PlanHandle)
    assert there.plan == here.plan
    assert there.prediction == here.prediction
    assert there.report.alternatives == here.report.alternatives
    assert there.report.assumptions == here.report.assumptions
    assert repr(there) == repr(here)
    timed = [dataclasses.replace(p.report.search, seconds=0.0) for p in both if p.report.search]
    assert timed[0] == timed[1]
    assert there._repr_html_().count("<tr>") == here._repr_html_().count("<tr>")


def test_a_stored_answer_is_read_to_the_last_digit(client: sw.Client) -> None:
    job = client.submit_plan(
        TYPED, "8xH100", global_batch=32, seq_len=256, pins=["compile=default"]
    )
    found = job.wait()
    assert json.loads(json.dumps(found.to_dict())) == job.document["answer"]
    assert '"compile"' in json.dumps(found.to_dict()["plan"])


def test_a_simulation_is_the_same(client: sw.Client, tmp_path: Path) -> None:
    flags: dict[str, Any] = {**GPT2, "tp": 2, "pp": 2, "recompute": "full", "stack": "megatron"}
    there, here = (face.simulate("gpt2", "8xH100", **flags) for face in (client, sw))
    assert isinstance(there, SimulationHandle)
    assert there.report == here.report
    assert there.timeline.step_time_s == pytest.approx(here.timeline.step_time_s, rel=1e-12)
    assert len(there.timeline.spans) == len(here.timeline.spans)
    path = here.save(tmp_path / "plan.json")
    for given in (path, str(path), here, here.plan, there):
        assert client.simulate(given, stack="megatron").prediction == here.prediction
    cost: dict[str, Any] = {"prices": {"currency": "USD", "device_hour": {"H100": 2}},
                            "tokens": 10**9}  # fmt: skip
    trained = client.simulate(there, **cost).prediction
    assert trained == sw.simulate(here.plan, stack="megatron", **cost).prediction
    assert trained.training is not None
    assert trained.training.cost == pytest.approx(1e9 * (trained.cost_per_token or 0), rel=1e-3)


def test_nouns_and_files_are_read_here(client: sw.Client, tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(dump_pretty(TYPED))
    typed = {"nodes": 1, "devices_per_node": 8, "device": "H100"}
    (tmp_path / "cluster.json").write_text(json.dumps(typed))
    asked: dict[str, Any] = {"global_batch": 32, "seq_len": 256, "tp": 2}
    want = sw.simulate(TYPED, "8xH100", **asked).plan.hash
    for model, cluster in (
        (TYPED, typed),
        (str(tmp_path / "tiny.json"), str(tmp_path / "cluster.json")),
        (tmp_path / "tiny.json", parse_cluster("8xH100").cluster),
    ):
        assert client.simulate(model, cluster, **asked).plan.hash == want
    noun = presets()["gpt2"].model
    assert client.simulate(noun, "8xH100", **GPT2).plan == sw.simulate(noun, "8xH100", **GPT2).plan


def test_prices_and_limits_reach_the_search(client: sw.Client) -> None:
    asked: dict[str, Any] = {
        "global_batch": 32, "seq_len": 256, "objective": "cost", "top": 1, "memory_gib": 20.0,
        "prices": {"currency": "USD", "device_hour": {"H100": 2.0}}, "oom_risk": 0.1,
        "executable": True, "prefer": "simple", "tokens": "2B",
    }  # fmt: skip
    there, here = (face.plan(TYPED, "2xH100", **asked) for face in (client, sw))
    assert there.plan == here.plan
    assert there.prediction == here.prediction
    assert there.prediction.cost_per_token is not None
    assert there.prediction.training is not None
    assert there.prediction.training.tokens == 2 * 10**9
    assert there.risk == here.risk == 0.1
    assert len(there.report.alternatives) == len(here.report.alternatives) <= 1


def test_an_explanation_is_the_same(both: tuple[PlanHandle, PlanHandle], client: sw.Client) -> None:
    there, here = both
    assert there.explain().to_document() == here.explain().to_document()
    assert client.explain(there).terms == here.explain().terms
    assert there.explain()._repr_html_() == here.explain()._repr_html_()


def test_a_comparison_is_the_same(both: tuple[PlanHandle, PlanHandle], client: sw.Client) -> None:
    there, here = both
    other = sw.simulate("gpt2", "8xH100", **GPT2, tp=2)
    found, want = client.compare(there, other), sw.compare(here, other)
    assert (found.terms, found.memory, found.decisions) == (
        want.terms, want.memory, want.decisions)  # fmt: skip
    assert repr(found) == repr(want)


@pytest.mark.parametrize(
    "question",
    [{"set": "device.flops=2x"}, {"set": {"nodes": 2}, "scale": "batch"},
     {"add": "8xH100"}, {"sweep": {"seq_len": [512, 256]}}],
)  # fmt: skip
def test_a_question_is_the_same(
    both: tuple[PlanHandle, PlanHandle], client: sw.Client, question: dict[str, Any]
) -> None:
    there = client.what_if(both[0], **question)
    here = sw.what_if(both[1], **question)
    assert isinstance(there, WhatIfs)
    assert list(there) == list(here)
    assert there.plans == here.plans
    assert there._repr_html_() == here._repr_html_()
    assert there.to_svg() == here.to_svg()
    assert there.to_dict()["plan_hash"] == both[0].plan.hash


@pytest.mark.evidence
@pytest.mark.timeout(120)
def test_a_long_sweep_gives_no_plan_away_that_it_was_not_told(client: sw.Client) -> None:
    p = client.simulate(TYPED, "1xH100", global_batch=2, seq_len=64)
    values = [1000 + n for n in range(101)]
    job = client.submit_what_if(p, sweep={"seq_len": values}, deadline_s=90)
    rows = [event for event in job.events() if event.name == "row"]
    found = job.wait()
    assert len(rows) == len(found) == 101
    assert set(found.plans) == {None}
    assert [row["seq_len"] for row in found] == values
    one = client.what_if(p, set={"seq_len": values[7]})[0]
    assert found[7]["re_planned_tokens_per_s"] == one["re_planned_tokens_per_s"]


MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda f: f.plan("gpt3x", "8xH100", **GPT2), InputError, "model"),
    (lambda f: f.plan("gpt2", "8xZ100", **GPT2), InputError, "cluster"),
    (lambda f: f.plan("gpt2", "8xH100", global_batch=8), InputError, "seq_len"),
    (lambda f: f.plan("gpt2", "8xH100", **GPT2, dtype=16), InputError, "dtype"),
    (lambda f: f.plan("gpt2", "8xH100", **GPT2, pins=["tp=5"]), InputError, "pins"),
    (lambda f: f.plan("gpt2", "8xH100", **GPT2, oom_risk=2.0), InputError, "oom_risk"),
    (lambda f: f.plan("gpt2", "8xH100", **GPT2, stack="megatrn"), InputError, "stack"),
    (lambda f: f.simulate("gpt2", "8xH100", tpp=2), InputError, "tpp"),
    (lambda f: f.simulate("gpt2", "8xH100", **GPT2, tp="2"), InputError, "tp"),
    (lambda f: f.simulate("gpt2", "8xH100", **GPT2, tp=5), InputError, "tp"),
    (lambda f: f.simulate("gpt2", "8xH100", **GPT2, memory_gib=-1.0), InputError, "memory_gib"),
    (lambda f: f.explain(3), InputError, "plan"),
    (lambda f: f.what_if(f.simulate("gpt2", "8xH100", **GPT2), set="x.flops=2x"), InputError,
     "set x.flops"),
    (lambda f: f.simulate("gpt2", "8xH100", **GPT2, recompute="ops:mlp"), InputError, "recompute"),
    (lambda f: f.plan("llama-3-70b", "1xH100", global_batch=1, seq_len=512), InfeasibleError, ""),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_the_same_errors(
    client: sw.Client, mistake: tuple[Callable[[Any], Any], type[Exception], str]
) -> None:
    call, kind, field = mistake
    errors = []
    for face in (client, sw):
        with pytest.raises(kind) as caught:
            call(face)
        errors.append(caught.value)
        assert len(str(caught.value).splitlines()) == 1
        if isinstance(caught.value, InputError):
            assert caught.value.field.split(" x ")[0] == field
    if kind is not InputError:
        assert str(errors[0]) == str(errors[1])


def test_what_only_works_here_says_so(client: sw.Client, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="galvatron_profile"):
        client.plan("gpt2", "8xH100", **GPT2, galvatron_profile=tmp_path)
    p = client.simulate("gpt2", "8xH100", **GPT2)
    with pytest.raises(InputError, match="allow-execute"):
        p.execute(1)
    with pytest.raises(InputError, match="verify"):
        p.execute(1, verify=True)


def test_jobs_go_on_without_their_client(client: sw.Client) -> None:
    job = client.submit_plan(TYPED, "4xH100", global_batch=32, seq_len=256)
    again = client.job(job.id)
    seen = list(again.events())
    assert [event.name for event in seen][-1] == "done"
    assert [event.id for event in again.events(after=seen[0].id)] == [e.id for e in seen[1:]]
    assert list(again.events(after=seen[-1].id)) == []
    found = again.wait()
    assert found.plan == job.refresh().result().plan
    listed = next(iter(client.jobs()))
    assert listed.id == job.id
    assert listed.wait().plan == found.plan
    assert "done" in repr(job)
    with pytest.raises(InputError, match="no such job"):
        client.job("0" * 32)
    with pytest.raises(InputError, match="job_id"):
        client.job("../models")


def test_a_job_found_again_prices_its_plan_as_it_was_asked(client: sw.Client) -> None:
    asked = {"stack": "deepspeed", "calibration": "none", "oom_risk": 0.2}
    job = client.submit_plan(TYPED, "4xH100", global_batch=32, seq_len=256, **asked)
    found, again = job.wait(), client.job(job.id).wait()
    assert again.pricing == found.pricing == {"stack": "deepspeed", "calibration": "none"}
    assert (again.risk, again.stack) == (found.risk, found.stack)
    assert again.simulate().prediction == found.simulate().prediction
    assert client.job(job.id).document["asked"]["oom_risk"] == 0.2


def test_more_jobs_than_a_page(client: sw.Client) -> None:
    made = [client.submit_plan(TYPED, "1xH100", global_batch=1, seq_len=64) for _ in range(3)]
    assert [job.id for job in client.jobs(most=3)] == [job.id for job in reversed(made)]
    for job in made:
        job.wait()


def _first_best(job: Job[PlanHandle]) -> None:
    for event in job.events():
        if event.name == "best":
            return
    raise AssertionError("the job ended without a best plan")


@pytest.mark.timeout(120)
def test_a_cancelled_search_gives_its_best(client: sw.Client) -> None:
    job = client.submit_plan(**SLOW)
    with pytest.raises(RunError, match="goes on"):
        job.wait(timeout_s=0.1)
    _first_best(job)
    with pytest.raises(RunError, match="running"):
        job.refresh().result()
    job.cancel()
    found = job.wait(timeout_s=20)
    assert job.state == "cancelled"
    assert not found.plan.check()
    assert found.prediction.feasible
    job.forget()
    with pytest.raises(InputError, match="there is no such job"):
        job.refresh()


@pytest.mark.timeout(120)
def test_ctrl_c_gives_the_best_so_far(client: sw.Client) -> None:
    job = client.submit_plan(**SLOW)

    def press(event: Any) -> None:
        if event.name == "best":
            raise KeyboardInterrupt

    found = job.wait(on_event=press)
    assert job.refresh().state == "cancelled"
    assert found.prediction.feasible
    late = client.submit_plan(**SLOW)
    late.cancel()
    late._await_end(None, None)
    if late.best is None:
        with pytest.raises(RunError, match="before it had found"):
            late.result()


@pytest.mark.evidence
@pytest.mark.timeout(120)
def test_a_service_that_restarts_is_waited_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.sqlite"
    running = start_service(tmp_path, "--db", url)
    port = str(running.address[1])
    with sw.Client(running.url) as client:
        job = client.submit_plan("llama-3-70b", "8x8xH100", global_batch=512, seq_len=8192)
        heard = job.events()
        first = next(heard)
        assert stop_service(running)[0] == 0
        running = start_service(tmp_path, "--db", url, "--port", port)
        names = [first.name, *(event.name for event in heard)]
        assert names[-1] == "done"
        assert names.count("done") == 1
        assert job.wait().prediction.feasible
    assert stop_service(running)[0] == 0


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("s3cret-token-of-thirty-two-letters-1\n")
    running = start_service(tmp_path, "--token-file", "tokens")
    try:
        with sw.Client(running.url, "s3cret-token-of-thirty-two-letters-1") as client:
            assert client.simulate("gpt2", "8xH100", **GPT2).prediction.feasible
        for token in (None, "another"):
            with sw.Client(running.url, token) as client, pytest.raises(InputError, match="token"):
                client.models()
    finally:
        stop_service(running)


def test_names_are_listed(client: sw.Client) -> None:
    assert client.models() == json.loads(json.dumps(sw.models()))
    assert client.clusters() == json.loads(json.dumps(sw.clusters()))


class _Flaky(BaseHTTPRequestHandler):
    """Busy twice, then an answer; remembers the keys that came."""

    keys: list[str | None] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.keys.append(self.headers["idempotency-key"])
        busy = len(self.keys) < 3
        body = b'{"status": 503, "detail": "busy"}' if busy else b'{"id": "a1", "state": "queued"}'
        self.send_response(503 if busy else 202)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        body = b"<html>a proxy's page</html>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *about: object) -> None:
        """Nothing is printed."""


def test_a_job_is_asked_for_again_under_its_key() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sw.Client(f"http://127.0.0.1:{server.server_port}") as client:
            assert client.submit_plan(TYPED, "1xH100", global_batch=1, seq_len=64).id == "a1"
            assert len(_Flaky.keys) == 3
            assert len(set(_Flaky.keys)) == 1
            assert _Flaky.keys[0]
            with pytest.raises(InputError, match="is this plan serve"):
                client.models()
        _Flaky.keys.clear()
        with (
            sw.Client(f"http://127.0.0.1:{server.server_port}", patience_s=0.2) as client,
            pytest.raises(RunError, match="503"),
        ):
            client.submit_plan(TYPED, "1xH100", global_batch=1, seq_len=64)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("url", ["127.0.0.1:80", 3, "ftp://x", "http://[::1", ""])
def test_what_is_no_address(url: Any) -> None:
    with pytest.raises(InputError, match="url"):
        sw.Client(url, patience_s=0).models()


def test_nobody_there() -> None:
    with pytest.raises(InputError, match="plan serve prints it"):
        sw.Client("http://127.0.0.1:9", patience_s=0.1).models()


def test_every_sort_of_problem_is_an_error_of_ours() -> None:
    urn = "urn:shardwright:problem:"
    for kind, status, error in (
        ("infeasible", 422, InfeasibleError),
        ("deadline", 422, InputError),
        ("too-large", 422, InputError),
        ("quota", 429, RunError),
        ("key-used", 422, InputError),
        ("", 500, RunError),
        ("", 413, InputError),
        ("", 422, InputError),
    ):
        assert type(error_of({"type": urn + kind, "status": status, "detail": "x"})) is error
    faults = [{"pointer": "/constraints/pins/1", "msg": "Input should be a valid string"}]
    found = error_of({"status": 422, "errors": faults}, {"constraints": {"pins": ["a", 3]}})
    assert str(found) == "pins.1: got 3; allowed: a valid string"
