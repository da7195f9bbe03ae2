"""The durable library's queue, filled in the transactions of our own tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from .workers.names import APPLICATION, JOB_QUEUE, RUN_QUEUE, VERSION, WORKFLOW


def library_client(url: str) -> Any:
    """A client of the library that opens the database when it is first used."""
    from dbos import DBOSClient, DBOSPortableJSONSerializer

    return DBOSClient(
        system_database_url=url,
        serializer=DBOSPortableJSONSerializer(),
        application_name=APPLICATION,
        retry_connection_errors=False,
        lazy=True,
    )


def workflow_id(job_id: str, piece: int) -> str:
    """The library's name of a piece of a job; the first has the job's own."""
    return f"{job_id}-{piece}" if piece else job_id


class LibraryQueue:
    """The queue, by a client of :func:`library_client`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, connection: sa.Connection, job_id: str, kind: str, piece: int) -> None:
        """Queue a piece of a job within a transaction."""
        options = {
            "queue_name": RUN_QUEUE if kind == "run" else JOB_QUEUE,
            "workflow_name": WORKFLOW,
            "workflow_id": workflow_id(job_id, piece),
            "app_version": VERSION,
        }
        self._client.enqueue_in_transaction(connection, options, job_id, piece)
