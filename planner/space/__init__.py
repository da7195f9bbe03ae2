"""The search space: legal pipeline shapes, layer strategies and programs' values of a request.

Enters: a request (model, cluster, workload, stack, pins, objective, techniques).
Leaves: pipeline shapes, strategies of each layer class, axes covered and plans left out.
Imports: spec, costmodel, planner/technique and planner/techniques.
"""
