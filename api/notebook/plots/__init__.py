"""Pictures of plans, timelines, comparisons, what-ifs and validations.

Enters: the objects behind handles.
Leaves: matplotlib figures without pyplot.
Imports: `spec`, `costmodel`, `planner`, `api.views`, `api.html.svg`.
"""
