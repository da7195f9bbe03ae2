"""spec schedules."""
