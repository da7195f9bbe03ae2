"""Checkpoints of a run: saved while it goes on, checked when read, loaded under any plan."""
