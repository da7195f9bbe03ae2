"""Published kernel latencies, and our own profiles; README.md has the sources.

Enters: the ``.npy`` grids and the profiles beside it.
Leaves: ``TimedGrid`` and shipped ``MachineProfile`` records.
Imports: spec.
"""
