"""Precedence chains of passes: what of a step certainly happens one after the other.

Enters: pass tables of layer classes, and a pipeline with fixed stage boundaries.
Leaves: chains with their weightings, Lagrangian bounds of one chain, estimates of uniform plans.
Imports: spec, costmodel, planner/{space, tables}.
"""
