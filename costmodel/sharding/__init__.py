"""Sharding of a layer's states: FSDP units, their traffic and bytes.

Enters: a ``UnitShape`` (layers, strategy, stage ranks, formats, framework profile, optimizer).
Leaves: an ``FsdpUnit`` with sizes on the fullest rank and the work items of its traffic. Imports:
spec; costmodel.symbolic, costmodel.layers.
"""
