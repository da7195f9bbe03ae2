"""Linear layers beside the tensor-parallel ones: unsplit, and in chunks.

Enters: activations, weights, the ranks. Leaves: projections. Imports: executor.models' collectives
and deferred gradients, kernels, spec.
"""
