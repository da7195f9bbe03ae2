"""Latencies that others measured, kernel by kernel (README.md says who and under which licence)."""
