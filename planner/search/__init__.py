"""Branch and bound for the best plan, with heuristics and proof.

Enters: an evaluator of decisions and work limits.
Leaves: feasible plans, best first, with a proven bound.
Imports: spec; planner: space, tables, candidates, dynamic_programming, bounds, heuristics.
"""
