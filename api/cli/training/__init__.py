"""Verbs about whole trainings: runs that were measured, and runs to be sized.

Enters: parsed flags.
Leaves: calls of ``api.diagnose`` and ``api.size``, and terminal views of the results.
Imports: as its parent.
"""
