"""Torch modules of each layer type, split over tensor, sequence, expert ranks.

Enters: layer specs, a ``LayerBuild`` (ranks, kernels, strategy), activations.
Leaves: ``LayerModule`` objects whose files pair with those of ``costmodel/layers``.
Imports: spec, kernels, ``torch_compat``; no other room of the executor.
"""
