"""Tables of the service's jobs, beside the durable-execution library's.

A job's row is the client's view of it; running it, and rerunning it after its worker died, is the
library's part. ``outcome`` is set once and never changes. A job waits in its owner's line by
``place`` until it is ``released`` to the library; ``piece`` counts the pieces of work that a sweep
was done in, ``worked_s`` their seconds; ``kept_bytes`` is what it takes of its owner's room
(:mod:`kept_bytes`).
"""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()
JOBS = sa.Table(
    "shardwright_jobs",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("given_plan", sa.Text),
    sa.Column("given_calibration", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("deadline_s", sa.Float, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("started_ms", sa.BigInteger),
    sa.Column("finished_ms", sa.BigInteger),
    sa.Column("cancel_ms", sa.BigInteger),
    sa.Column("attempt", sa.Integer, nullable=False, default=0),
    sa.Column("outcome", sa.Text),
    sa.Column("status", sa.Integer),
    sa.Column("answer", sa.Text),
    sa.Column("best", sa.Text),
    sa.Column("released", sa.Integer),
    sa.Column("running", sa.Integer),
    sa.Column("place", sa.BigInteger),
    sa.Column("piece", sa.Integer),
    sa.Column("worked_s", sa.Float),
    sa.Column("kept_bytes", sa.BigInteger),
    sa.Index("shardwright_jobs_key", "owner", "kind", "idempotency_key", unique=True),
    sa.Index("shardwright_jobs_listed", "owner", "kind", "id"),
    sa.Index("shardwright_jobs_open", "owner", "outcome"),
    sa.Index("shardwright_jobs_kept", "owner", "kept_bytes"),
)
SHORT_COLUMNS = tuple(
    JOBS.c[name]
    for name in (
        "id", "kind", "created_ms", "started_ms", "finished_ms", "cancel_ms", "attempt", "outcome",
        "status", "deadline_s",
    )
)  # fmt: skip
"""The columns of a job that are never long."""
DbRow = Any
"""A row of the columns that were asked for; the library types each selection on its own."""
PIECES = sa.Table(
    "shardwright_pieces",
    METADATA,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("piece", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("value", sa.Text, nullable=False),
)
"""What an open sweep has found, by the pieces of work that found it."""
SLOTS = sa.Table(
    "shardwright_slots",
    METADATA,
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("process", sa.Text, nullable=False),
    sa.Column("beat_ms", sa.BigInteger, key="beat", nullable=False),  # a count; the name is older
)
PROBES = sa.Table(
    "shardwright_probes",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("filling", sa.Text, nullable=False),
)
CACHE = sa.Table(
    "shardwright_cache",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("made_ms", sa.BigInteger, nullable=False),
)
PROFILES = sa.Table(
    "shardwright_profiles",
    METADATA,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("used_ms", sa.BigInteger),
)
DBOS_METADATA = sa.MetaData(schema="dbos")
"""Tables of the library that are read here; it documents them. SQLite has no schemas."""
STREAMS = sa.Table(
    "streams",
    DBOS_METADATA,
    sa.Column("workflow_uuid", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("offset", sa.Integer, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("function_id", sa.Integer, nullable=False, default=0),
    sa.Column("serialization", sa.Text),
)
WORKFLOWS = sa.Table(
    "workflow_status",
    DBOS_METADATA,
    sa.Column("workflow_uuid", sa.Text, primary_key=True),
    sa.Column("status", sa.Text),
    sa.Column("executor_id", sa.Text),
    sa.Column("queue_name", sa.Text),
)


def now_ms() -> int:
    """Milliseconds since 1970, the tables' time unit."""
    return time.time_ns() // 1_000_000
