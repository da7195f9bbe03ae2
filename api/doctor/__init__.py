"""``plan doctor``: every figure behind a prediction, with its source.

Enters: a model and a cluster.
Leaves: one document of figures, layer classes, price sources and nearest runs.
Imports: `spec`, `datasets`, `costmodel`, `planner`, `api.problem`, `api.catalogue`,
`api.validation`, `api.views`.
"""
