"""Models from configurations of the transformers library, one file a group of families.

Enters: parsed ``config.json`` documents.
Leaves: ``ModelSpec`` and the assumptions made; else ``InputError`` or ``NotBuiltError``.
Imports: errors, inputs, model, report (``Assumption``).
"""
