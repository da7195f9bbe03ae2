"""Training of a plan: the train job, its step loop, dry runs."""
