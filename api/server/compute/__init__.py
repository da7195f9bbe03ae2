"""Limited children that compute answers, and the pool that keeps them.

Enters: request bodies as bytes, with a deadline.
Leaves: status and body, progress events.
Imports: `spec`, `costmodel`, `planner`, `api.problem`, `api.planning`, `api.frameworks`,
`api.views`.
"""
