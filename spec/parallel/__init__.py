"""Partitions of ranks, samples and tokens inside a pipeline stage.

Enters: a layer's strategy, and the size or the device groups of its stage.
Leaves: rank groups, and the samples and tokens of each rank.
Imports: model, strategy.
"""
