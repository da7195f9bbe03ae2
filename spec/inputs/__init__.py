"""Typed quantities and keys, read strictly.

Enters: text and documents that a person or another program wrote.
Leaves: SI values, checked keys, the list of what-if keys; else ``InputError``.
Imports: errors.
"""
