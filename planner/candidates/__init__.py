"""planner candidates."""
