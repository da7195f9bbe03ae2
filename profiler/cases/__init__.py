"""profiler cases."""
