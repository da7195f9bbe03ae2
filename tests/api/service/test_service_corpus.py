"""A thousand hostile requests, as raw bytes, to every route; the evidence tier sends 20,000.

No answer is a fault of the service's, has a status that the committed description does not name,
is longer than 8 KiB, or repeats what was sent; and the service has nothing to say to its operator.
"""

from __future__ import annotations

import collections
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from service import hostile, hostile_bodies
from service.services import start_service, stop_service

COUNT, BODIES = 700, 300


def test_the_corpus_is_whole() -> None:
    names = [case.name for case in hostile.cases()]
    assert len(names) == len(set(names)) >= 80
    parts = collections.Counter(case.part for case in hostile.cases())
    assert set(parts) == set(hostile.PARTS)
    assert len(hostile.routes()) >= 26
    for case in hostile.cases():
        for route in hostile.routes():
            assert hostile.request_of(case, route)


def test_hostile_bodies_reach_every_post_route_and_every_depth() -> None:
    assert {route.path for route, _ in hostile_bodies.bases()} >= {
        "/v1/plans", "/v1/simulations", "/v1/what-ifs", "/v1/runs", "/v1/profiles",
    }  # fmt: skip
    sample = list(hostile_bodies.sample(300, seed=0))
    assert sample == list(hostile_bodies.sample(300, seed=0))
    bodies = [request.partition(b"\r\n\r\n")[2] for _, request in sample]
    for token in (b"1e999", b"NaN", b"1e308", b"9223372036854775808", b"\\ud800"):
        assert sum(token in body for body in bodies) >= 5


@pytest.mark.timeout(300)
def test_a_thousand_hostile_requests(tmp_path: Path) -> None:
    service = start_service(
        tmp_path, "--db", f"sqlite:///{tmp_path}/jobs.sqlite", "--allow-execute"
    )
    requests = [*hostile.sample(COUNT, seed=0), *hostile_bodies.sample(BODIES, seed=0)]
    parts = [requests[start::4] for start in range(4)]
    with ThreadPoolExecutor(4) as crowd:
        found = list(crowd.map(lambda part: hostile.faults(service.address, part), parts))
    assert [fault for part in found for fault in part] == []
    assert httpx.get(service.url + "/healthz").status_code == 200
    assert stop_service(service) == (0, "")
