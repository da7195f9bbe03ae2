"""A user's module under a plan: layers found, described, parallelized in place."""
