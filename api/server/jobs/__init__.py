"""Durable jobs: accepted, queued, watched, kept in a database.

Enters: checked bodies of searches, what-ifs and runs.
Leaves: rows and documents of jobs, calibrations by owner.
Imports: `spec`, `api.server.compute`.
"""
