"""Single-process reference of a run, and verification against it."""
