"""Families whose layers mix tokens by recurrences and convolutions, one file a family.

Enters: a ``ConfigKeys`` of the family and a name.
Leaves: ``ModelSpec``; the assumptions made, in the ``ConfigKeys``.
Imports: errors, model, huggingface.
"""
