"""planner chains."""
