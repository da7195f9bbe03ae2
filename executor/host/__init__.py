"""Host memory of a run: offloaded tensors, transfers, process memory.

Enters: tensors, local parameters.
Leaves: host tensors, fetched shards, bytes of the process.
Imports: kernels, ``stage``.
"""
