"""Search over several device groups: space, tables, bounds and choice of shapes.

Enters: an evaluator of decisions on a cluster of several device groups.
Leaves: an engine of planner/search whose plans span the groups.
Imports: spec, costmodel; planner: space, tables, candidates, dynamic_programming, heuristics,
search.
"""
