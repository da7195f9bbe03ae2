"""Proven lower bounds on the step time of shapes, cheap ones first.

Enters: a space, tables of layer options, prices, a byte budget.
Leaves: bounds and estimates in seconds, and as values of the objective.
Imports: spec, costmodel; planner: space, tables, candidates, dynamic_programming, relaxation.
"""
