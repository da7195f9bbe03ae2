"""planner bounds."""
