"""Search for a plan: decision tree, dynamic programming, proven bounds.

Enters: a request (model, cluster, workload, stack, pins, objective).
Leaves: the best plan with a proven lower bound, alternatives, or why nothing fits.
Imports: spec, costmodel, datasets.
"""
