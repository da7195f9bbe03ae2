"""profiler store."""
