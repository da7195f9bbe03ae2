"""Measured profiles over HTTP: fitted, kept under a name of their token, used by nobody else."""

from __future__ import annotations

import copy
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.token_service import ANNA, BEN, Asked, with_service

from shardwright.api.server.jobs.database import prepare
from shardwright.api.server.openapi.profiles import KEPT_EXAMPLE, PROFILE_EXAMPLE
from shardwright.costmodel.kernel_latency.gemm_features import gemm
from shardwright.costmodel.kernel_latency.refitted import ShippedPrices
from shardwright.datasets.catalogue.device import device

ASKED: dict[str, Any] = {
    "model": "llama-2-7b",
    "cluster": "8xA100-80GB",
    "workload": {"global_batch": 64, "seq_len": 4096},
    "stack": "shardwright",
    "calibration": "our-a100s",
}
SIMULATED = {**ASKED, "strategy": {"tp": 2, "dp": 4}}


def _slower(times: float) -> dict[str, Any]:
    """The example with steps that took so many times as long."""
    body = copy.deepcopy(PROFILE_EXAMPLE)
    for row in body["rows"]:
        row["step_time_s"] *= times
    return body


def _kernels(slower: float) -> dict[str, Any]:
    """Products of an untimed device, each so many times as long as shipped prices say."""
    shapes = [(2**a, 2**b, 2**c) for a in (9, 11, 13) for b in (9, 11, 13) for c in (10, 12, 14)]
    kernels = [gemm(m, k, n, "bf16") for m, k, n in shapes]
    shipped = ShippedPrices(device("A10"))
    rows = [
        {"hardware": "A10", "op": x.op, "shape": "x".join(map(str, x.shape)), "dtype": x.dtype,
         "flops": x.flops, "traffic_bytes": x.traffic_bytes, "time_s": slower * shipped.seconds(x)}
        for x in kernels
    ]  # fmt: skip
    return {"name": "our-a10", "rows": rows}


def test_timed_kernels_refit_prices_of_a_device(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        made = await ask(ANNA, "POST", "/v1/profiles", _kernels(2.0))
        assert made.status_code == 201, made.text
        kept = made.json()
        assert (kept["device"], kept["rows_usable"]) == ("A10-24GB", 27)
        assert kept["residual"]["groups"] == ["product"]
        body = {**SIMULATED, "model": "gpt2", "cluster": "8xA10", "calibration": None}
        body["workload"] = {"global_batch": 64, "seq_len": 1024}
        answers = [
            (await ask(ANNA, "POST", "/v1/simulations", {**body, "calibration": name})).json()
            for name in ("none", "our-a10")
        ]
        matmul = [answer["prediction"]["breakdown_s"]["matmul"] for answer in answers]
        assert matmul[1] == pytest.approx(2 * matmul[0], rel=0.05)
        assert answers[1]["source_share"]["learned"] > 0.5
        low, high = answers[1]["prediction"]["step_time_interval_s"]
        assert low < answers[1]["prediction"]["step_time_s"] < high
        poisoned = _kernels(1.0)
        poisoned["rows"][4]["time_s"] = -1.0
        refused = await ask(ANNA, "POST", "/v1/profiles", poisoned)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/rows/4/time_s"

    with_service(tmp_path, test)


def test_a_profile_is_kept_used_replaced_and_forgotten(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        unknown = await ask(ANNA, "POST", "/v1/simulations", SIMULATED)
        assert unknown.status_code == 422
        assert unknown.json()["errors"][0]["pointer"] == "/calibration"
        made = await ask(ANNA, "POST", "/v1/profiles", PROFILE_EXAMPLE)
        assert (made.status_code, made.headers["location"]) == (201, "/v1/profiles/our-a100s")
        kept = made.json()
        assert (kept["device"], kept["stack"]) == ("A100-SXM-80GB", "shardwright")
        assert (kept["rows_read"], kept["rows_usable"]) == (3, 3)
        one = await ask(ANNA, "GET", "/v1/profiles/our-a100s")
        assert set(one.json()) == set(KEPT_EXAMPLE)
        assert one.json()["factors"] == kept["factors"]
        listed = (await ask(ANNA, "GET", "/v1/profiles")).json()["items"]
        assert [item["hash"] for item in listed] == [kept["hash"]]
        first = await ask(ANNA, "POST", "/v1/simulations", SIMULATED)
        assert first.status_code == 200, first.text
        assert first.json()["provenance"]["calibration"] == f"our-a100s {kept['hash'][:19]}"
        again = await ask(ANNA, "POST", "/v1/profiles", _slower(2.0))
        assert again.status_code == 200
        second = await ask(ANNA, "POST", "/v1/simulations", SIMULATED)
        seconds = [each.json()["prediction"]["step_time_s"] for each in (first, second)]
        assert seconds[1] > 1.5 * seconds[0]
        assert (await ask(ANNA, "DELETE", "/v1/profiles/our-a100s")).status_code == 204
        assert (await ask(ANNA, "DELETE", "/v1/profiles/our-a100s")).status_code == 404
        assert (await ask(ANNA, "POST", "/v1/simulations", SIMULATED)).status_code == 422

    with_service(tmp_path, test)


def test_nobody_sees_or_uses_the_profiles_of_another_token(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        assert (await ask(ANNA, "POST", "/v1/profiles", PROFILE_EXAMPLE)).status_code == 201
        assert (await ask(BEN, "GET", "/v1/profiles")).json() == {"items": []}
        for method in ("GET", "DELETE"):
            hidden = await ask(BEN, method, "/v1/profiles/our-a100s")
            missing = await ask(BEN, method, "/v1/profiles/nothing")
            assert hidden.status_code == missing.status_code == 404
            assert hidden.json() == missing.json()
        for path, body in (("/v1/simulations", SIMULATED), ("/v1/plans", ASKED)):
            refused = await ask(BEN, "POST", path, body)
            assert refused.status_code == 422
            assert "our-a100s" not in refused.json()["detail"]
        assert (await ask(BEN, "POST", "/v1/profiles", _slower(2.0))).status_code == 201
        own = (await ask(ANNA, "GET", "/v1/profiles/our-a100s")).json()["hash"]
        assert own != (await ask(BEN, "GET", "/v1/profiles/our-a100s")).json()["hash"]

    with_service(tmp_path, test)


def test_profiles_are_counted_and_of_one_place_a_name(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        assert (await ask(ANNA, "POST", "/v1/profiles", PROFILE_EXAMPLE)).status_code == 201
        full = await ask(ANNA, "POST", "/v1/profiles", {**PROFILE_EXAMPLE, "name": "another"})
        assert (full.status_code, full.json()["type"]) == (429, "urn:shardwright:problem:quota")
        other = copy.deepcopy(PROFILE_EXAMPLE)
        for row in other["rows"]:
            row["hardware"] = "H100-80GB"
        taken = await ask(ANNA, "POST", "/v1/profiles", other)
        assert taken.status_code == 422
        assert taken.json()["errors"][0]["pointer"] == "/name"
        assert "A100-SXM-80GB with shardwright" in taken.json()["detail"]

    with_service(tmp_path, test, profiles=1)


def _row(**changes: Any) -> dict[str, Any]:
    body = copy.deepcopy(PROFILE_EXAMPLE)
    body["rows"][1].update(changes)
    return body


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "../x", "rows": [{}]}, "/name"),
        ({**PROFILE_EXAMPLE, "name": "none"}, "/name"),
        ({"name": "x", "rows": []}, "/rows"),
        ({"name": "x", "rows": [{"step_time_s": 1.0}]}, None),
        (_row(layers="many"), "/rows/1/layers"),
        (_row(layer=3), "/rows/1/layer"),
        (_row(step_time_s=-1), "/rows/1/step_time_s"),
        (_row(id="unnamed-0"), "/rows/1/id"),
        (_row(hardware="H100-80GB"), "/rows"),
        (_slower(1000.0), "/rows/step_time_s"),
    ],
)
def test_tables_that_are_none(service: Any, body: Any, pointer: str | None) -> None:
    answer = httpx.post(service.url + "/v1/profiles", json=body, timeout=40)
    assert answer.status_code == 422, answer.text
    assert len(answer.content) <= 8192
    if pointer is not None:
        assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_job_keeps_the_profile_that_it_was_accepted_with(service: Any) -> None:
    """And a row of a sweep that was known under one calibration is computed anew under another."""
    wait = {"Prefer": "wait=30"}
    with httpx.Client(base_url=service.url, timeout=45) as client:
        assert client.post("/v1/profiles", json=PROFILE_EXAMPLE).status_code in (200, 201)
        found = client.post("/v1/plans", json=ASKED, headers=wait)
        assert found.status_code == 200, found.text
        provenance = found.json()["provenance"]["calibration"]
        assert provenance.startswith("our-a100s sha256:")
        question = {
            "plan": found.json()["plan"], "set": {"intra_node.bandwidth": "2x"},
            "stack": "shardwright", "calibration": "our-a100s",
        }  # fmt: skip
        first = client.post("/v1/what-ifs", json=question, headers=wait).json()
        assert client.post("/v1/profiles", json=_slower(2.0)).status_code == 200
        second = client.post("/v1/what-ifs", json=question, headers=wait).json()
        times = [each["baseline"]["prediction"]["step_time_s"] for each in (first, second)]
        assert times[1] > 1.5 * times[0]
        trace = client.get(found.headers["location"] + "/trace")
        ends = [event["ts"] + event.get("dur", 0) for event in trace.json()["traceEvents"]
                if "ts" in event]  # fmt: skip
        step_s = found.json()["prediction"]["step_time_s"]
        assert max(ends) == pytest.approx(step_s * 1e6, rel=0.02)
        assert client.delete("/v1/profiles/our-a100s").status_code == 204


def test_an_earlier_database_gets_the_new_columns(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.sqlite"
    prepare(url)
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.execute("ALTER TABLE shardwright_jobs DROP COLUMN given_calibration")
    database.close()
    prepare(url)
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        rows = database.execute("PRAGMA table_info(shardwright_jobs)").fetchall()
    database.close()
    assert "given_calibration" in {row[1] for row in rows}
