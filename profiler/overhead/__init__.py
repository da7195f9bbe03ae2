"""Host time and kernel slowdown constants, fitted to small plans' steps.

Enters: a profile's kernels and collectives, and a function that times a plan's step.
Leaves: the profile with its constants.
Imports: spec, datasets, costmodel.
"""
