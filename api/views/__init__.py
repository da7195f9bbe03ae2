"""Views of results shared by several outputs.

Enters: reports, explanations, comparisons.
Leaves: rows, lines of text and documents.
Imports: `spec`, `costmodel`, `planner`, `api.catalogue`, `api.planning`, `api.what_if`.
"""
