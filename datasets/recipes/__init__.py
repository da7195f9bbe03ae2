"""Data recipes as documents, and the contract of their stages.

Enters: a YAML or JSON file, or its typed keys. Leaves: a ``Recipe``, canonical and hashed.
Imports: spec. No library of the extra ``data`` is loaded here.
"""
