"""Plans of one strategy for all layers: textbook plans, and the spaces of stacks that run no other.

Enters: shapes, option tables and what simulates a decision.
Leaves: uniform decisions by growing bound or estimate; the search of a stack's space.
Imports: spec; planner: space, tables, candidates, dynamic_programming, bounds, heuristics, search.
"""
