"""Models from transformers configurations, one file per group of families.

Enters: parsed ``config.json`` documents.
Leaves: ``ModelSpec`` and the assumptions made; else ``InputError`` or ``NotBuiltError``.
Imports: errors, inputs, model, report (``Assumption``).
"""
