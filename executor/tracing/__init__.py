"""Traces of a run: times by breakdown term, live bytes, memory snapshots."""
