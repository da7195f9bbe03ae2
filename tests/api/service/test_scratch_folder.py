"""Temporary folders of a service go with it, whatever ends it."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import httpx
import pytest
from service.request_bodies import PLAN
from service.services import start_service, stop_service

from shardwright.api.server.scratch_folder import PREFIX, scratch_folder
from shardwright.spec.temporary_folder import LOCK, remove_abandoned


def test_folders_of_services_that_are_gone_are_removed_and_no_others(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("shardwright-job-x", f"{PREFIX}unlocked", "else")]
    for folder in others:
        folder.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "else")
    (tmp_path / "else" / LOCK).touch()
    gone = tmp_path / f"{PREFIX}gone"
    gone.mkdir()
    (gone / LOCK).touch()
    before = tempfile.gettempdir(), os.environ.get("TMPDIR")
    tempfile.tempdir = str(tmp_path)
    try:
        with scratch_folder() as mine:
            assert not gone.exists()
            assert Path(tempfile.mkdtemp()).parent == mine == Path(os.environ["TMPDIR"])
            remove_abandoned(tmp_path, PREFIX)  # as another service does
            assert mine.exists()
        assert not mine.exists()
    finally:
        tempfile.tempdir = before[0]
    assert os.environ.get("TMPDIR") == before[1]
    assert all(folder.is_dir() for folder in others)
    assert (tmp_path / f"{PREFIX}link").is_symlink()


@pytest.mark.timeout(200)
def test_nothing_is_left_of_a_service_that_was_ended(tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    where = ("--db", f"sqlite:///{tmp_path}/jobs.sqlite")
    environment = {"TMPDIR": str(place)}
    first = start_service(tmp_path, *where, environment=environment)
    headers = {"Prefer": "wait=30"}
    answer = httpx.post(first.url + "/v1/plans", json=PLAN, headers=headers, timeout=40)
    assert answer.status_code == 200
    first.process.kill()
    first.process.communicate()
    [left] = place.iterdir()
    assert list(left.glob("shardwright-job-*"))  # all of its processes' folders lie in its own
    for number in (signal.SIGHUP, signal.SIGQUIT):
        service = start_service(tmp_path, *where, environment=environment)
        assert left not in place.iterdir()
        assert stop_service(service, number) == (0, "")
        assert not list(place.iterdir())
