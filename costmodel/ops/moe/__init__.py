"""Parts of a mixture of experts: gate, order, dispatch, experts, combine.

Enters: an ``OpContext``, the ``Moe`` spec, symbolic tensors, groups of ranks. Leaves: symbolic
results; kernels, collectives and gradients on the tape. Imports: spec; costmodel.symbolic,
costmodel.ops.
"""
