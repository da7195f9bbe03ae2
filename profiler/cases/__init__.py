"""Kernels to time, with sizes and operands.

Enters: a device, operand types, a coarse or fine grid.
Leaves: ``Case``s in the order of their weight; classification of out-of-memory errors.
Imports: spec, kernels.
"""
