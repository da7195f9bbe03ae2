"""What several ways out show of results, computed once.

Enters: reports, explanations, comparisons.
Leaves: rows, lines of text and documents.
Imports: `spec`, `costmodel`, `planner`, `api.catalogue`, `api.planning`, `api.what_if`.
"""
