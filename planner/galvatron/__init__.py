"""An exact search over Galvatron's space under Galvatron's costs.

Enters: a GalvatronJob (profile, batch, devices) and a budget of MB.
Leaves: the best plan with a proven bound, best plans of other shapes, coverage, the minimum budget.
Imports: spec, costmodel/galvatron, planner/{tables, bounds}.
"""
