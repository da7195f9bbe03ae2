"""planner dynamic_programming."""
