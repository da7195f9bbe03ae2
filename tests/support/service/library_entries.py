"""The durable library's queue without the library: entries that its streams refer to."""

from __future__ import annotations

import sqlalchemy as sa

from shardwright.api.server.jobs.library_queue import workflow_id

QUEUED = """INSERT INTO {schema}workflow_status
(workflow_uuid, status, created_at, updated_at, priority) VALUES (:id, 'ENQUEUED', 1, 1, 0)"""


class EnteredJobs(list[tuple[str, int]]):
    """Jobs and pieces in the order in which they came to the library."""

    def __call__(self, connection: sa.Connection, job_id: str, kind: str, piece: int) -> None:
        schema = "dbos." if connection.dialect.name == "postgresql" else ""
        entry = {"id": workflow_id(job_id, piece)}
        connection.execute(sa.text(QUEUED.format(schema=schema)), entry)
        self.append((job_id, piece))
