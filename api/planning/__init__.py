"""Reports of plans, and plans from the flags of ``plan simulate`` and of Galvatron profiles.

Enters: a Problem, a Plan or a Solution, and flags.
Leaves: a Report (with its simulation), and uniform plans.
Imports: api.problem; planner.solve, space, technique and techniques; costmodel, datasets, spec.
"""
