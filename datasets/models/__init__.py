"""Models by name or file: presets, ``config.json``, typed keys, hub cache.

Enters: what a person types after ``--model``.
Leaves: a ``ModelSpec`` and the assumptions made.
Imports: catalogue, spec.
"""
