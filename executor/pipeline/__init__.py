"""Pipeline runtime: actions of a rank, message routes, mailbox.

Enters: a plan's passes, routes between chunks, callables that run a chunk.
Leaves: the loss of a step; gradients lie in the parameters.
Imports: spec, kernels, ``groups.rank_layout``, ``launch.progress``.
"""
