"""Solve a resolved problem: ``solve`` goes from a Problem to a Solution.

It chooses the search (one device group, several, or the largest size that fits) and finds the
smallest changes that make an infeasible problem feasible.

Enters: a Problem and SolveOptions.
Leaves: a Solution, or an InfeasibleError with the smallest changes that fit.
Imports: planner.search, heterogeneous, galvatron, candidates, space, technique and techniques;
costmodel, datasets (clusters and devices, for changes), spec.
"""
