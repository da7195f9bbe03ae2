"""Recurrent token mixers: state-space (Mamba-2) and gated delta rule, plain or fused.

Enters: an ``OpContext``, the mixer's spec and strategy, the block's input. Leaves: the mixer's
output; its kernels and gradients on the tape. Imports: spec; costmodel.symbolic, costmodel.ops.
"""
