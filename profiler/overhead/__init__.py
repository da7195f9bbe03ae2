"""Constants of host time and kernel slowdown, fitted to steps of small plans.

Enters: a profile's kernels and collectives, and a function that times a plan's step.
Leaves: the profile with its constants.
Imports: spec, datasets, costmodel.
"""
