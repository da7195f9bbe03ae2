"""Precedence chains of passes: parts of a step in certain sequence.

Enters: pass tables of layer classes, and a pipeline with fixed stage boundaries.
Leaves: chains with their weightings, Lagrangian bounds of one chain, estimates of uniform plans.
Imports: spec, costmodel, planner/{space, tables}.
"""
