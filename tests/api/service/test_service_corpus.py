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
from service import hostile
from service.services import start_service, stop_service

COUNT = 1000


def test_the_corpus_is_whole() -> None:
    names = [case.name for case in hostile.cases()]
    assert len(names) == len(set(names)) >= 80
    parts = collections.Counter(case.part for case in hostile.cases())
    assert set(parts) == set(hostile.PARTS)
    assert len(hostile.routes()) >= 26
    for case in hostile.cases():
        for route in hostile.routes():
            assert hostile.request_of(case, route)


@pytest.mark.timeout(300)
def test_a_thousand_hostile_requests(tmp_path: Path) -> None:
    service = start_service(
        tmp_path, "--db", f"sqlite:///{tmp_path}/jobs.sqlite", "--allow-execute"
    )
    requests = list(hostile.sample(COUNT, seed=0))
    parts = [requests[start::4] for start in range(4)]
    with ThreadPoolExecutor(4) as crowd:
        found = list(crowd.map(lambda part: hostile.faults(service.address, part), parts))
    assert [fault for part in found for fault in part] == []
    assert httpx.get(service.url + "/healthz").status_code == 200
    assert stop_service(service) == (0, "")
