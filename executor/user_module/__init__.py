"""A user's own module under a plan: its layers found, described, and parallelised in place."""
