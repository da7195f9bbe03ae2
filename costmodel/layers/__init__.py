"""Layers of every kind as symbolic forward work, with backward nodes.

Enters: an ``OpContext``, the layer's spec and strategy, its input activations. Leaves: ``Outputs``
(activations, loss); the layer's work on the tape. Imports: spec; costmodel.symbolic, costmodel.ops,
costmodel.ops.recurrent.
"""
