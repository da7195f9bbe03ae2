"""profiler timing."""
