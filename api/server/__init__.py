"""REST service: routes, a gate, limited child processes, durable jobs.

Enters: HTTP requests.
Leaves: documents, problems (RFC 9457), events, metrics.
Imports: `spec`, `datasets`, `costmodel`, `planner`, other rooms of `api`.
"""
