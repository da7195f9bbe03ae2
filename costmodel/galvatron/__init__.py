"""Galvatron's own cost semantics, so that its plans and ours are priced alike."""
