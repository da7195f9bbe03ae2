"""Core attention of a sequence that is split over ranks: rings and Ulysses.

Enters: queries, keys and values of a rank's tokens, the ranks. Leaves: outputs of its tokens.
Imports: executor.models' token layout, kernels, spec.
"""
