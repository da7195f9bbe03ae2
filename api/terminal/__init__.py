"""Results as text on a terminal, at most 100 columns.

Enters: reports, documents and results.
Leaves: printed lines.
Imports: `spec`, `costmodel`, `planner`, `api.views`, `api.html`, `api.problem`, `api.what_if`,
`api.execution`.
"""
