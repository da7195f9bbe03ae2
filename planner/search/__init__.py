"""planner search."""
