"""Routes over jobs, their events, views and profiles.

Enters: HTTP requests and the job service.
Leaves: responses.
Imports: `api.server`, `api.server.jobs`.
"""
