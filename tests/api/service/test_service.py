"""``plan serve``: answers, waiting, tokens, hosts, its own description, children that end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from shardwright.api.server import gate
from shardwright.api.server.admission import Admission, AdmissionRules
from shardwright.api.server.app import make_app
from shardwright.api.server.gate import Gate, GateRules, hash_token
from shardwright.api.server.openapi.examples import PLAN_EXAMPLE, SIMULATION_EXAMPLE
from shardwright.api.server.openapi.examples_what_if import WHAT_IF_EXAMPLE

PLAN = {
    "model": "gpt2",
    "cluster": "8xH100",
    "workload": {"global_batch": 64, "seq_len": 1024},
}
SIMULATION = {**PLAN, "strategy": {"tp": 2, "pp": 2}}
HEAVY = {
    "model": "llama-3.1-405b",
    "cluster": "1024x8xH100",
    "workload": {"global_batch": 8192, "seq_len": 8192},
}
PROBLEM = "application/problem+json"
WAIT = {"Prefer": "wait=30"}


def test_healthy_and_ready(service: Any) -> None:
    assert httpx.get(service.url + "/healthz").json() == {"status": "ok"}
    ready = httpx.get(service.url + "/readyz").json()
    assert {**ready, "workers": 2} == {"status": "ready", "db": "ok", "workers": 2}
    assert ready["workers"] >= 1


def test_plan_is_that_of_the_command(service: Any, plan: Callable[..., Any]) -> None:
    answer = httpx.post(
        service.url + "/v1/plans", json=PLAN, headers={"Prefer": "wait=25"}, timeout=30
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["preference-applied"] == "wait=25"
    assert answer.headers["cache-control"] == "no-store"
    arguments = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64")
    typed = plan(*arguments, "--seq-len", "1024", "--json", "-").document
    given = answer.json()
    assert given["plan_hash"] == typed["plan_hash"]
    assert set(given) == set(typed)
    assert given["prediction"] == typed["prediction"]


def test_plan_without_a_preference_is_a_job(service: Any) -> None:
    answer = httpx.post(service.url + "/v1/plans", json=PLAN, timeout=40)
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


def test_simulation_is_that_of_the_command(service: Any, base_report: Any) -> None:
    body = {**SIMULATION, "strategy": {"tp": 2, "pp": 2, "shard": "zero2"}}
    answer = httpx.post(service.url + "/v1/simulations", json=body, timeout=20)
    assert answer.status_code == 200, answer.text
    assert answer.json() == base_report


def test_a_split_sequence_is_simulated(service: Any) -> None:
    strategy = {"tp": 2, "sp": "ulysses", "cp": 2, "shard": "hpz:2"}
    answer = httpx.post(
        service.url + "/v1/simulations", json={**SIMULATION, "strategy": strategy}, timeout=20
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["prediction"]["breakdown_s"]["exposed_cp"] > 0
    shard = {"gradients": 8, "optimizer": 8, "parameters": 8, "secondary_parameters": 2}
    parts = answer.json()["plan"]["programs"][0]["stages"][0]["virtual_stages"][0]
    assert {json.dumps(part["strategy"]["shard"]) for part in parts} == {json.dumps(shard)}
    assert all(part["strategy"]["cp"] == 2 for part in parts)


def test_experts_are_split_over_ranks(service: Any) -> None:
    """The strategy's ep and etp, as the command line's flags."""
    url = service.url + "/v1/simulations"
    body: dict[str, Any] = {
        "model": {"layers": 2, "hidden": 128, "heads": 4, "ffn": 256, "vocab": 512,
                  "experts": 8, "topk": 2},
        "cluster": "8xH100",
        "workload": {"global_batch": 8, "seq_len": 256},
        "strategy": {"ep": 4, "etp": 2},
    }  # fmt: skip
    answer = httpx.post(url, json=body, timeout=20)
    assert answer.status_code == 200, answer.text
    assert answer.json()["prediction"]["breakdown_s"]["exposed_ep"] > 0
    body["strategy"] = {"ep": 3}
    refused = httpx.post(url, json=body, timeout=20)
    assert refused.status_code in (400, 422)
    assert "--ep" in refused.text or "/strategy/ep" in refused.text


def test_simulation_of_a_plan(service: Any, base_report: Any) -> None:
    body = {"plan": base_report["plan"]}
    answer = httpx.post(service.url + "/v1/simulations", json=body, timeout=20)
    assert answer.status_code == 200, answer.text
    assert answer.json()["prediction"] == base_report["prediction"]


def test_constraints_and_typed_nouns(service: Any) -> None:
    body = {
        "model": {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512},
        "cluster": {"nodes": 1, "devices_per_node": 4, "device": "A100"},
        "workload": {"global_batch_tokens": 8192, "seq_len": 256, "dtype": "bf16"},
        "objective": "throughput",
        "stack": "megatron",
        "calibration": "none",
        "constraints": {"pins": ["tp=2"], "memory_gib": 20, "oom_risk": 0.1, "top": 1},
        "deadline_s": 1,
    }
    answer = httpx.post(service.url + "/v1/plans", json=body, headers=WAIT, timeout=40)
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["plan"]["cluster"]["groups"][0]["memory"]["hbm_bytes"] == 20 * 2**30
    assert report["plan"]["workloads"]["main"]["global_batch"] == 32
    assert report["provenance"]["stack"].startswith("megatron")


def test_what_does_not_fit_is_simulated_and_not_planned(service: Any) -> None:
    body = {
        "model": "llama-3-70b",
        "cluster": "1xH100",
        "workload": {"global_batch": 1, "seq_len": 512},
    }
    simulated = httpx.post(service.url + "/v1/simulations", json=body, timeout=20)
    assert simulated.status_code == 200
    assert simulated.json()["prediction"]["feasible"] is False
    planned = httpx.post(service.url + "/v1/plans", json=body, headers=WAIT, timeout=40)
    assert planned.status_code == 422
    assert planned.json()["type"] == "urn:shardwright:problem:infeasible"
    assert "hbm" in planned.json()["detail"]


def test_catalogues(service: Any, plan: Callable[..., Any]) -> None:
    for name in ("models", "clusters"):
        answer = httpx.get(f"{service.url}/v1/{name}")
        assert answer.status_code == 200
        assert answer.json() == plan(name, "--json", "-").document


def test_a_deadline_in_the_body(service: Any) -> None:
    body = {**PLAN, "deadline_s": 0.01}
    answer = httpx.post(service.url + "/v1/plans", json=body, headers=WAIT, timeout=40)
    assert answer.status_code == 200
    assert answer.json()["search"]["stopped_by"] in ("deadline", "proof", "work")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/plans/", 404),
        ("GET", "/v1/runs", 404),
        ("GET", "/v1/simulations", 405),
        ("DELETE", "/v1/plans", 405),
        ("POST", "/v1/models", 405),
        ("HEAD", "/v1/models", 405),
        ("OPTIONS", "/v1/plans", 405),
    ],
)
def test_other_paths_and_methods_are_problems(
    service: Any, method: str, path: str, status: int
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.request(method, service.url + path, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == PROBLEM
    if status == 405:
        assert answer.headers["allow"]
    if method != "HEAD":
        document = answer.json()
        assert document["status"] == status
        assert {"type", "title", "detail"} <= set(document)


def test_pointers_name_the_faults(service: Any) -> None:
    body = {
        "model": "gpt2",
        "cluster": "8xH100",
        "workload": {"global_batch": "64", "seq_len": 1024.0, "seqlen": 1},
        "stratgey": {},
    }
    answer = httpx.post(service.url + "/v1/simulations", json=body)
    pointers = {item["pointer"] for item in answer.json()["errors"]}
    expected = {"/workload/global_batch", "/workload/seq_len", "/workload/seqlen", "/stratgey"}
    assert pointers == expected
    for change, pointer in (
        ({"workload": {"global_batch": 64}}, "/workload/seq_len"),
        ({"strategy": {"tp": 5}}, "/strategy/tp"),
        (
            {"strategy": {"cp": 8}, "workload": {"global_batch": 64, "seq_len": 1000}},
            "/strategy/cp",
        ),
        ({"model": "gpt-2"}, "/model"),
        ({"model": {"layers": 2, "hidden": 100, "heads": 8, "vocab": 300}}, "/model/heads"),
        ({"cluster": "9xH100"}, "/cluster"),
        ({"cluster": {"nodes": 0, "devices_per_node": 8, "device": "H100"}}, "/cluster/nodes"),
        ({"stack": "megatorn"}, "/stack"),
    ):
        refused = httpx.post(service.url + "/v1/simulations", json={**SIMULATION, **change})
        assert refused.status_code == 422, refused.text
        assert [item["pointer"] for item in refused.json()["errors"]] == [pointer]
    pins = {**PLAN, "constraints": {"pins": ["tp=5"]}}
    refused = httpx.post(service.url + "/v1/plans", json=pins)
    assert refused.json()["errors"][0]["pointer"] == "/constraints/pins"


PRICED = {"objective": "cost", "prices": {"currency": "USD", "device_hour": {"H100": 2.5}}}


def test_a_plan_for_cost_is_that_of_the_command(
    service: Any, plan: Callable[..., Any], tmp_path: Path
) -> None:
    body = {
        "model": "llama-3-8b",
        "cluster": "8xH100",
        "workload": {"global_batch": 16, "seq_len": 8192},
        "prefer": "simple",
        **PRICED,
    }
    answer = httpx.post(service.url + "/v1/plans", json=body, headers=WAIT, timeout=40)
    assert answer.status_code == 200, answer.text
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(PRICED["prices"]))
    arguments = ("--model", "llama-3-8b", "--cluster", "8xH100", "--global-batch", "16")
    flags = ("--objective", "cost", "--prices", str(file), "--prefer", "simple")
    typed = plan(*arguments, "--seq-len", "8192", *flags, "--json", "-").document
    given = answer.json()
    assert given["plan_hash"] == typed["plan_hash"]
    assert given["prediction"]["cost_per_token"] == typed["prediction"]["cost_per_token"] > 0


def test_a_largest_batch_over_http(service: Any) -> None:
    body = {
        "model": "gpt2",
        "cluster": "1xH100",
        "workload": {"seq_len": 1024},
        "objective": "largest-batch:8",
        "constraints": {"pins": ["recompute=none"], "memory_gib": 8},
    }
    answer = httpx.post(service.url + "/v1/plans", json=body, headers=WAIT, timeout=40)
    assert answer.status_code == 200, answer.text
    found = answer.json()["search"]["largest"]
    assert found["size"] % 8 == 0
    assert found["size"] > 0


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"objective": "cost"}, "/prices"),
        ({"objective": "cheapest"}, "/objective"),
        ({"objective": "largest-batch:0"}, "/objective"),
        ({"prefer": "simpler"}, "/prefer"),
        ({"prices": "/etc/passwd"}, "/prices"),
        ({"prices": {"device_hour": {"H100": 2.5}}}, "/prices/currency"),
        ({"prices": {"currency": "USD", "device_hour": {"H100": -1}}}, "/prices/device_hour/H100"),
        ({"prices": {"currency": "USD", "device_hour": {"H1000": 1}}}, "/prices/device_hour"),
        ({"prices": {"currency": "USD", "device_hour": {"A100": 1}}}, "/prices/device_hour"),
    ],
)
def test_pointers_of_objectives_and_prices(service: Any, change: Any, pointer: str) -> None:
    refused = httpx.post(service.url + "/v1/plans", json={**PLAN, **change}, timeout=20)
    assert refused.status_code == 422, refused.text
    assert [item["pointer"] for item in refused.json()["errors"]] == [pointer]


def test_requests_for_other_hosts_are_refused(service: Any) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", ""):
        answer = httpx.get(service.url + "/healthz", headers={"Host": host})
        assert answer.status_code in (400, 421), host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]", "[::1]:80"):
        assert httpx.get(service.url + "/healthz", headers={"Host": host}).status_code == 200


def _refs(node: Any) -> set[str]:
    if isinstance(node, dict):
        inner = set().union(*(_refs(value) for value in node.values())) if node else set()
        return inner | ({node["$ref"]} if isinstance(node.get("$ref"), str) else set())
    if isinstance(node, list):
        return set().union(*(_refs(item) for item in node)) if node else set()
    return set()


def test_openapi_is_whole(service: Any) -> None:
    document = httpx.get(service.url + "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    for reference in _refs(document):
        assert reference.removeprefix("#/components/schemas/") in schemas, reference
    operations = [op for path in document["paths"].values() for op in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names) == 35
    for operation in operations:
        assert operation["summary"]
        for status, response in operation["responses"].items():
            if status in ("204", "304"):
                assert "content" not in response
                continue
            for kind, content in response["content"].items():
                assert (kind == PROBLEM) == (int(status) >= 400)
                assert "example" in content
                assert content["schema"]["$ref"]
        assert {"421", "500"} <= set(operation["responses"])
        assert {"200", "202", "204"} & set(operation["responses"])
    plans = document["paths"]["/v1/plans"]["post"]
    assert plans["requestBody"]["content"]["application/json"]["example"] == PLAN_EXAMPLE
    assert {"401", "408", "413", "415", "422", "429", "503"} <= set(plans["responses"])
    assert schemas["WorkloadBody"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/plans", PLAN_EXAMPLE), ("/v1/simulations", SIMULATION_EXAMPLE)]
)
def test_examples_are_answered(service: Any, path: str, body: Any) -> None:
    answer = httpx.post(service.url + path, json=body, headers=WAIT, timeout=40)
    assert answer.status_code == 200, answer.text
    described = httpx.get(service.url + "/openapi.json").json()["paths"][path]["post"]
    example = described["responses"]["200"]["content"]["application/json"]["example"]
    given = answer.json()
    assert set(given) == set(example)
    assert set(given["prediction"]) == set(example["prediction"])
    assert set(given["prediction"]["breakdown_s"]) == set(example["prediction"]["breakdown_s"])
    for row in given["prediction"]["memory"]:
        assert set(row) == set(example["prediction"]["memory"][0])
        assert set(row["by"]) == set(example["prediction"]["memory"][0]["by"])
    assert set(given.get("search", ())) == set(example.get("search", ()))
    assert set(given["provenance"]) == set(example["provenance"])


def test_a_what_if_is_answered_as_its_example_says(service: Any) -> None:
    url = service.url + "/v1/what-ifs"
    answer = httpx.post(url, json=WHAT_IF_EXAMPLE, headers={"Prefer": "wait=25"}, timeout=40)
    assert answer.status_code == 200, answer.text
    assert answer.headers["preference-applied"] == "wait=25"
    described = httpx.get(service.url + "/openapi.json").json()["paths"]["/v1/what-ifs"]["post"]
    example = described["responses"]["200"]["content"]["application/json"]["example"]
    given = answer.json()
    assert set(given) == set(example)
    for key in ("baseline", "same_plan", "re_planned"):
        assert set(given[key]) == set(example[key])
        assert set(given[key]["prediction"]) == set(example[key]["prediction"])
    for key in ("changes", "plan_hash", "moved"):
        assert type(given[key]) is type(example[key])
    assert given["changes"] == example["changes"]
    assert given["moved"]["term"] == example["moved"]["term"]
    assert set(given["re_planned"]["search"]) == set(example["re_planned"]["search"])


def test_a_sweep_over_http_is_that_of_the_command(
    service: Any, plan: Callable[..., Any], base_report: Any, tmp_path: Path
) -> None:
    target = tmp_path / "plan.json"
    target.write_text(json.dumps(base_report["plan"]))
    body = {"plan": base_report["plan"], "sweep": {"global_batch": [32, "1x"]}, "scale": "fixed"}
    answer = httpx.post(service.url + "/v1/what-ifs", json=body, headers=WAIT, timeout=40)
    assert answer.status_code == 200, answer.text
    given = answer.json()
    typed = plan("what-if", str(target), "--sweep", "global_batch=32,1x", "--json", "-").document
    assert given["sweep"]["values"] == [32, "1x"]
    for row, other in zip(given["rows"], typed["rows"], strict=True):
        assert {**row, "value": ""} == {**other, "value": ""}


@pytest.mark.parametrize(
    ("more", "pointer", "says"),
    [
        ({"set": {"device.hbm": "40"}}, "/set/device.hbm", "40GiB"),
        ({"sweep": {"nodes": [1, 2.5]}}, "/sweep/nodes", "2 or 3"),
        ({"set": {"inter_node.bandwith": "2x"}}, "/set/inter_node.bandwith", "intra_node"),
        ({}, "/set", "a change"),
        ({"add": "/etc/hosts.yaml"}, "/add", "NxTYPE"),
        ({"plan": None, "set": {"nodes": 2}}, "/plan", "a plan"),
        ({"plan_id": "p1", "set": {"nodes": 2}}, "/plan", "not both"),
        ({"plan": None, "plan_id": "p1", "set": {"nodes": 2}}, "/plan_id", "that is done"),
        ({"sweep": {"nodes": [1], "seq_len": [512]}}, "/sweep", "at most 1 item"),
    ],
)
def test_what_ifs_that_cannot_be(
    service: Any, base_report: Any, more: dict[str, Any], pointer: str | None, says: str
) -> None:
    body = {"plan": base_report["plan"], **more}
    answer = httpx.post(service.url + "/v1/what-ifs", json=body, timeout=20)
    assert answer.status_code == 422, answer.text
    found = answer.json()
    assert says in json.dumps(found)
    if pointer is not None:
        assert found["errors"][0]["pointer"].startswith(pointer)


def test_catalogue_examples_are_parts_of_the_catalogues(service: Any) -> None:
    paths = httpx.get(service.url + "/openapi.json").json()["paths"]
    for path in ("/v1/models", "/v1/clusters"):
        content = paths[path]["get"]["responses"]["200"]["content"]["application/json"]
        given = httpx.get(service.url + path).json()
        assert set(given) == set(content["example"])
        for name, entries in content["example"].items():
            if name in ("devices", "nodes", "fabrics", "models"):
                known = {item["name"]: item for item in given[name]}
                for entry in entries:
                    assert entry.items() <= known[entry["name"]].items()


def test_one_model_is_described_and_its_example_is_part_of_it(service: Any) -> None:
    paths = httpx.get(service.url + "/openapi.json").json()["paths"]
    content = paths["/v1/models/{name}"]["get"]["responses"]["200"]["content"]
    example = content["application/json"]["example"]
    given = httpx.get(service.url + "/v1/models/GPT2").json()
    assert set(example) <= set(given)
    assert example["layer_kinds"][0] in given["layer_kinds"]
    for name in ("name", "kind", "parameters", "layers", "weights_bytes", "training_bytes"):
        assert example[name] == given[name]
    assert example["adapter_targets"] == given["adapter_targets"]
    assert example["spec"].items() <= given["spec"].items()
    for name in ("nothing", "config.json", "..%2F..%2Fetc%2Fpasswd"):
        assert httpx.get(f"{service.url}/v1/models/{name}").status_code == 404


def _settled(service: Any) -> set[int]:
    """Its children once none is being replaced."""
    seen: set[int] = set()
    while (now := service.children()) != seen or len(now) < 2:
        seen = now
        time.sleep(0.3)
    return seen


def test_killed_children_are_replaced(service: Any) -> None:
    killed = _settled(service)
    for child in killed:
        os.kill(child, signal.SIGKILL)
    while killed & service.children():  # until the service has noticed
        time.sleep(0.05)
    answer = httpx.post(service.url + "/v1/simulations", json=SIMULATION, timeout=30)
    assert answer.status_code == 200, answer.text


def test_many_searches_leave_health_alone(service: Any) -> None:
    limits = httpx.Limits(max_connections=32)
    with (
        httpx.Client(base_url=service.url, limits=limits, timeout=40) as client,
        ThreadPoolExecutor(24) as crowd,
    ):
        headers = {"Prefer": "wait=1"}
        ask = lambda _: client.post("/v1/plans", json=HEAVY, headers=headers)  # noqa: E731
        asking = [crowd.submit(ask, number) for number in range(24)]
        time.sleep(0.3)
        start_s = time.monotonic()
        assert client.get("/healthz").status_code == 200
        assert time.monotonic() - start_s < 2
        answers = [future.result() for future in asking]
        for answer in answers:
            if answer.status_code == 202:
                assert client.delete(answer.headers["location"]).status_code in (202, 204)
    statuses = {answer.status_code for answer in answers}
    assert statuses <= {200, 202, 429, 503}
    assert 202 in statuses
    for answer in answers:
        assert answer.status_code == 200 or answer.headers["retry-after"]


# --- the gate, without a socket ----------------------------------------------------------------


def _through_gate(
    rules: GateRules, path: str = "/v1/models", body: Any = None, **headers: str
) -> tuple[int, dict[str, str]]:
    """Status and headers of a request that passes, or does not pass, the gate."""
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        if body is None:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(body)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    method = "GET" if body is None else "POST"
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": raw,
    }  # fmt: skip
    asyncio.run(Gate(inner, rules, Admission(AdmissionRules()))(scope, receive, send))
    return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}


def test_every_route_but_health_needs_a_token() -> None:
    rules = GateRules(hosts=None, token_hashes=(hash_token("a" * 20), hash_token("b" * 20)))
    for path in ("/v1/models", "/v1/plans", "/openapi.json", "/nothing"):
        status, headers = _through_gate(rules, path)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        for wrong in ("Bearer", "Bearer x", "Basic " + "a" * 20, "a" * 20, "Bearer " + "a" * 19):
            assert _through_gate(rules, path, authorization=wrong)[0] == 401
        for token in ("a" * 20, "b" * 20):
            assert _through_gate(rules, path, authorization=f"bearer {token}")[0] == 200
    assert _through_gate(rules, "/healthz")[0] == 200


def test_a_browser_is_asked_for_the_token_and_may_send_it_as_a_password() -> None:
    token = "a" * 20
    rules = GateRules(hosts=None, token_hashes=(hash_token(token),))
    for path in ("/", "/page/app.js"):
        status, headers = _through_gate(rules, path)
        assert status == 401
        assert headers["www-authenticate"].startswith("Basic realm=")

    def sent(pair: bytes) -> int:
        basic = "Basic " + base64.b64encode(pair).decode()
        return int(_through_gate(rules, "/v1/models", authorization=basic)[0])

    for name in (b"", b"me", b"\xff"):
        assert sent(name + b":" + token.encode()) == 200
    for wrong in (b"", b":", token.encode(), token.encode() + b":", b"me:" + token.encode() + b"a"):
        assert sent(wrong) == 401
    assert _through_gate(rules, "/", authorization="Basic \xe9")[0] == 401


def test_slow_bodies_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_S", 0.1)
    rules = GateRules(hosts=None)
    status, headers = _through_gate(rules, body=0.03, content_type="application/json")
    assert (status, headers["connection"]) == (408, "close")


def test_tokens_over_http(tmp_path: Path, start_service: Any, stop_service: Any) -> None:
    """A service that asks for a token, from its file to its refusal."""
    (tmp_path / "tokens").write_text("0123456789abcdef-first\n\n0123456789abcdef-second\n")
    running = start_service(tmp_path, "--token-file", "tokens")
    try:
        url = running.url
        assert httpx.get(url + "/v1/models").status_code == 401
        headers = {"Authorization": "Bearer 0123456789abcdef-second"}
        assert httpx.get(url + "/v1/models", headers=headers).status_code == 200
    finally:
        assert stop_service(running) == (0, "")


def test_ctrl_c_answers_what_waits_and_leaves_no_child(
    tmp_path: Path, start_service: Any, stop_service: Any
) -> None:
    running = start_service(tmp_path)
    with ThreadPoolExecutor(4) as crowd:  # more than there are children
        headers = {"Prefer": "wait=30"}
        ask = lambda _: httpx.post(  # noqa: E731
            running.url + "/v1/plans", json=HEAVY, headers=headers, timeout=40
        )
        asking = [crowd.submit(ask, number) for number in range(4)]
        time.sleep(1.0)
        children = running.children()
        assert children
        start_s = time.monotonic()
        assert stop_service(running) == (0, "")
        assert time.monotonic() - start_s < 10
        # on a busy machine a request may come when the door is shut
        late = [f for f in asking if isinstance(f.exception(), httpx.ConnectError)]
        assert len(late) < len(asking)
        for future in set(asking) - set(late):
            answer = future.result()
            if answer.status_code == 202:  # a job already, which the next service does
                continue
            assert answer.status_code == 503
            assert answer.headers["content-type"] == PROBLEM
            assert answer.json()["detail"] == "the service is ending"
    assert not any(_runs(child) for child in children)


def test_children_do_not_outlive_a_killed_service(tmp_path: Path, start_service: Any) -> None:
    running = start_service(tmp_path)
    children = _settled(running)
    body = json.dumps(HEAVY).encode()
    head = (
        "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(running.address, timeout=10) as client:
        client.sendall(head.encode() + body)
        time.sleep(0.5)
        running.process.kill()
        running.process.communicate(timeout=10)
    ends_s = time.monotonic() + 10
    while any(_runs(child) for child in children) and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert not any(_runs(child) for child in children)


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_port_that_is_taken(service: Any, plan: Callable[..., Any]) -> None:
    port = str(service.address[1])
    result = plan("serve", "--port", port)
    assert result.code == 2
    assert result.out == ""
    assert re.fullmatch(rf"--port: got {port}; allowed: a port that is free.*\n", result.err)


def test_the_application_describes_itself_without_serving() -> None:
    assert make_app().openapi()["info"]["title"] == "Shardwright"
