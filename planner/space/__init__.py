"""planner space."""
