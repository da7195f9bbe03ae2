"""Dynamic programs over layers and stages, and enumeration of small shapes.

Enters: option tables of layer classes, pipeline shapes, budgets of bytes.
Leaves: Pareto labels of a stage's strategies, stage boundaries, plans by growing bound.
Imports: spec, planner/{space, tables, candidates}.
"""
