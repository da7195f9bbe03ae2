"""Concrete decisions: their plans, simulated once and judged against memory.

Enters: decisions, a simulator, a memory rule.
Leaves: outcomes, or the error that no plan fits.
Imports: spec, costmodel, datasets; planner: space, tables.
"""
