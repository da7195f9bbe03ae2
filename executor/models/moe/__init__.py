"""Mixtures of experts: gate, order, dispatch, experts, combine.

Enters: activations of a block, the ``Moe`` spec, the ranks that hold experts.
Leaves: the combined outputs of the experts.
Imports: spec, kernels, ``torch_compat`` and the modules of ``models``.
"""
