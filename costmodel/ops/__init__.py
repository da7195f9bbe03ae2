"""Operations of layers as symbolic work, forward and backward.

Enters: an ``OpContext`` (tape, framework profile, parallel groups, formats) and symbolic tensors.
Leaves: symbolic results; kernels, collectives and gradients recorded on the tape. Imports: spec;
costmodel.symbolic.
"""
