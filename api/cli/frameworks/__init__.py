"""Verbs about other frameworks' files.

Enters: parsed flags.
Leaves: calls of ``api.frameworks`` and terminal views of the results.
Imports: as its parent.
"""
