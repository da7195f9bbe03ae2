"""Named models and machines as JSON documents, with sources.

Enters: a name to narrow down to, or none.
Leaves: documents of models, devices, nodes, fabrics and levels.
Imports: `datasets`, `spec`.
"""
