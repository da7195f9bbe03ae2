"""Primal heuristics: ways to good plans of one shape, one a file.

Enters: a shape, the options of its layers or its relaxed step, and what simulates a decision.
Leaves: decisions tried, one after the other.
Imports: spec; planner: space, tables, candidates, dynamic_programming, relaxation, bounds.
"""
