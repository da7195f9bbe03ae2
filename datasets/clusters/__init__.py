"""Clusters from text, files or this machine, and their change of size.

Enters: what a person types after ``--cluster``, or its typed keys.
Leaves: ``ParsedCluster``: a ``ClusterSpec``, its assumptions and its full text.
Imports: catalogue, spec.
"""
