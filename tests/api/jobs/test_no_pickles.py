"""Whoever can write the database runs no code by it."""

from __future__ import annotations

import base64
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from service.services import start_service, stop_service

QUICK = {
    "model": "gpt2",
    "cluster": "1x2xA100-40GB",
    "workload": {"global_batch": 8, "seq_len": 512},
    "deadline_s": 20,
}
LONG = {**QUICK, "model": "llama-3-70b", "cluster": "8x8xH100", "deadline_s": 5}
COLUMNS = ("workflow_status", "operation_outputs", "streams")
REFUSALS = """
import base64, pickle
from shardwright.api.server.jobs.no_pickle import PickleRefusedError, refuse_pickles
from dbos import _serialization as library

harmful, harmless = b"cos\\nsystem\\n.", b"(lp0\\n."
refuse_pickles()
for text in (harmful, harmless):
    try:
        library.deserialize_value(base64.b64encode(text).decode(), "py_pickle", None)
    except PickleRefusedError as error:
        print(error)
try:
    pickle.loads(harmful)
except PickleRefusedError as error:
    print(error)
print(library.deserialize_value("[1]", "portable_json", None))
"""


def planted_command(path: Path) -> bytes:
    """A pickle that makes a file where it is loaded, written by hand."""
    return f"cos\nsystem\n(S'touch {path}'\ntR.".encode()


def test_pickles_are_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSALS], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    by_name = "stored values are JSON: the serializer py_pickle is refused"
    assert done.stdout.splitlines() == [
        by_name, by_name, "stored values are JSON: pickles are refused", "[1]"
    ]  # fmt: skip


@pytest.mark.timeout(240)
def test_a_row_changed_into_a_pickle_runs_no_code(tmp_path: Path) -> None:
    file, mark = tmp_path / "jobs.sqlite", tmp_path / "run"
    service = start_service(tmp_path, "--db", f"sqlite:///{file}")
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for _ in range(4):  # what holds the workers up meanwhile
            assert client.post("/v1/plans", json=LONG).status_code == 202
        place = client.post("/v1/plans", json=QUICK).headers["location"]
        planted = base64.b64encode(planted_command(mark))
        with sqlite3.connect(file, timeout=20) as database:
            changed = database.execute(
                "UPDATE workflow_status SET serialization = 'py_pickle', inputs = ?"
                " WHERE workflow_uuid = ? AND status = 'ENQUEUED'",
                (planted.decode(), place.rpartition("/")[2]),
            )
            assert changed.rowcount == 1
        database.close()
        ends_s = time.monotonic() + 80
        while (job := client.get(place).json())["state"] in ("queued", "running"):
            assert time.monotonic() < ends_s
            time.sleep(0.2)
        assert not mark.exists()
        assert job["state"] == "failed"
        assert "cannot be read" in job["problem"]["detail"]
        found = client.post("/v1/plans", json=QUICK, headers={"Prefer": "wait=30"})
        assert found.status_code in (200, 202)
    assert stop_service(service) == (0, "")
    _only_json(file)


def _only_json(file: Path) -> None:
    """All values that the library keeps are portable JSON, but for the planted one."""
    with sqlite3.connect(file) as database:
        kinds = {
            row[0]
            for table in COLUMNS
            for row in database.execute(f"SELECT DISTINCT serialization FROM {table}")
        }
    database.close()
    assert kinds - {None} == {"portable_json", "py_pickle"}
