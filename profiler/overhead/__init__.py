"""profiler overhead."""
