"""planner tables."""
