"""planner what_if."""
