"""Workers that take jobs off the queue, and their supervision.

Enters: queued jobs.
Leaves: outcomes, events and rows in the database.
Imports: `api.server.compute`, `api.server.jobs`, `api.cli` for runs.
"""
