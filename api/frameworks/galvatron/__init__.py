"""Galvatron: its JSON of a strategy for each layer.

Enters: a file that Galvatron's search writes, or a plan.
Leaves: settings; ``galvatron_config.json`` and a launch line.
Imports: as its parent.
"""
