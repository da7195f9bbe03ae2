"""Pages and drawings: a plan in one file, reports for notebooks, SVG.

Enters: reports, explanations, validations, what-if results.
Leaves: HTML and SVG text that fetches nothing.
Imports: `spec`, `costmodel`, `planner`, `api.views`, `api.what_if`, `api.validation`.
"""
