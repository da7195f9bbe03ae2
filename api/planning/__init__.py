"""Reports of plans, and plans from simulate or Galvatron flags.

Enters: a Problem, a Plan or a Solution, and flags.
Leaves: a Report (with its simulation), and uniform plans.
Imports: api.problem; planner.solve, space, technique and techniques; costmodel, datasets, spec.
"""
