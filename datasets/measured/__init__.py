"""Published kernel latencies, and profiles of our own (README.md has sources and licenses).

Enters: the ``.npy`` grids and the profiles beside it.
Leaves: ``TimedGrid`` and shipped ``MachineProfile`` records.
Imports: spec.
"""
