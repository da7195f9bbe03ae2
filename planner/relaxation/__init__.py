"""Linear relaxation of a pipeline's step: bounds and fractional plans.

Enters: pass tables and layer classes of a stage context, a pipeline shape, bytes of a device.
Leaves: lower bounds of its steps, dual prices, fractional options to round.
Imports: spec, costmodel, planner/{space, tables, dynamic_programming, chains}; highspy if there.
"""
