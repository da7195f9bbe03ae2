"""planner heuristics."""
