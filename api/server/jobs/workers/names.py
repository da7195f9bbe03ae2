"""Names by which service and workers find each other in the durable library."""

from __future__ import annotations

APPLICATION = "shardwright"
VERSION = "1"
"""Of how jobs are stored. A release that could not run older jobs would raise it."""
JOB_QUEUE = "jobs"
RUN_QUEUE = "runs"
"""The queue of runs, which only workers that may execute take from."""
WORKFLOW = "job"
