"""Worker: takes jobs off the durable queue, one at a time.

Its standard input brings one JSON line ``{"db": URL, "execute": whether it may run plans, "log":
level}`` and stays open; when it closes, the service is gone and the worker ends with it. Its output
tells the service that it lives (:mod:`supervisor`). A worker holds a slot (:mod:`slots`), whose
number is its executor id: whoever notices that a slot is dead has its jobs rerun.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from typing import Any

from ...lifeline import when_input_closes
from ...logs import configure_logging, log_event
from .names import APPLICATION, JOB_QUEUE, RUN_QUEUE, VERSION, WORKFLOW
from .supervisor import BEATING, STARTING

POLL_S = 0.1
WAIT_S = 1.0
"""How often a starting worker looks whether the database can be written."""
MAX_SILENCE_S = {"postgresql": 5.0, "sqlite": 25.0}
"""A holder that could not beat for so long ends: another one may hold its slot by now, sooner where
it may be on another machine."""


def main() -> None:
    """Work until the service ends."""
    settings = json.loads(sys.stdin.readline())
    configure_logging(settings["log"])
    # What it was doing is done again by the next holder of its slot.
    when_input_closes(lambda: os._exit(0))
    try:
        Worker(settings["db"], settings["execute"], settings.get("window")).work()
    except Exception as error:  # one line for the operator; the service starts another worker
        log_event("worker ended", logging.ERROR, error=type(error).__name__)
        os._exit(1)


class Worker:
    """Holder of a slot."""

    def __init__(self, url: str, may_execute: bool, window: int | None = None) -> None:
        from ..database import open_engine
        from ..library_queue import LibraryQueue, library_client
        from ..store import JobStore
        from ..turns import Turns
        from .orphans import OrphanedJobs
        from .slots import WorkerSlots

        self._url = url
        self._queues = [JOB_QUEUE, RUN_QUEUE] if may_execute else [JOB_QUEUE]
        self._engine = open_engine(url)
        self._slots = WorkerSlots(self._engine)
        turns = Turns(LibraryQueue(library_client(url)), window)
        self._store = JobStore(self._engine, turns)
        self._orphans = OrphanedJobs(self._store)
        self._slot = self._taken_slot()

    def _taken_slot(self) -> int:
        """Take a slot as soon as the database can be written."""
        from ..database import StoreError, check_writable

        waits = False
        while True:
            _say(STARTING)
            try:
                check_writable(self._engine)
                return self._slots.take()
            except StoreError as error:
                if not waits:
                    log_event("worker waits", logging.ERROR, error=error.reason)
                waits = True
                time.sleep(WAIT_S)

    def work(self) -> None:
        """Launch the library, then send heartbeats and look for dead slots forever."""
        from dbos import DBOS, DBOSPortableJSONSerializer

        from ..no_pickle import refuse_pickles
        from .slots import executor_id

        refuse_pickles()

        DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self._url,
                "executor_id": executor_id(self._slot),
                "application_version": VERSION,
                "serializer": DBOSPortableJSONSerializer(),
                "run_migrations": False,
                "log_level": "CRITICAL",
            }
        )
        self._register(DBOS)
        DBOS.listen_queues(self._queues)
        DBOS.launch()
        for queue in self._queues:
            DBOS.register_queue(queue, worker_concurrency=1, polling_interval_sec=POLL_S)
        self._heartbeat_loop(DBOS)

    def _register(self, library: Any) -> None:
        from .attempt import JobRunner

        runner = JobRunner(self._store)

        def search(job_id: str, piece: int) -> None:
            try:
                runner.run(job_id, piece)
            except Exception as error:
                # The database failed in the midst: the next holder of the slot tries again.
                log_event("worker ended", logging.ERROR, error=type(error).__name__)
                os._exit(1)

        step = library.step(name="search")(search)

        def job(job_id: str, piece: int = 0) -> None:
            with self._orphans.running(library.workflow_id):
                try:
                    step(job_id, piece)
                except Exception as error:
                    # The library failed to keep its own account, and would give the job up.
                    log_event("worker ended", logging.ERROR, error=type(error).__name__)
                    os._exit(1)

        library.workflow(name=WORKFLOW, max_recovery_attempts=None)(job)

    def _heartbeat_loop(self, library: Any) -> None:
        from ..database import StoreError, store_errors
        from .slots import HEARTBEAT_S, executor_id

        heard_s, most_s = time.monotonic(), MAX_SILENCE_S[self._engine.dialect.name]
        while True:
            _say(BEATING)
            try:
                if not self._slots.heartbeat(self._slot):
                    os._exit(3)  # someone took it
                heard_s = time.monotonic()
                for dead in self._slots.take_over(self._slot):
                    # The library has no public call for this, only its commercial console.
                    with store_errors():
                        library._recover_pending_workflows([executor_id(dead)])
                    self._slots.drop(dead)
                self._orphans.requeue(library, self._slot)
            except StoreError:
                if time.monotonic() - heard_s > most_s:
                    raise
            time.sleep(HEARTBEAT_S)


def _say(sign: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody listens: the service is gone
        os.write(sys.stdout.fileno(), sign)


if __name__ == "__main__":
    main()
