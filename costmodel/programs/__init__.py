"""Programs as sequences: loop nests, their leaves with positions, devices as vectors.

Enters: a ``Kernel`` of the lowering, or a nest that somebody walked. Leaves: a ``Program`` of
leaves, their features and positions; the vector of a device. Imports: spec, datasets;
costmodel.arrays, kernel_latency.
"""
