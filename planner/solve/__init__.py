"""One function from a resolved problem to the best plan and what was found beside it.

It picks the search (one device group, several, or the largest size that fits), bounds its time,
and says what would make an infeasible problem feasible.

Enters: a Problem and SolveOptions.
Leaves: a Solution, or an InfeasibleError with the smallest changes that fit.
Imports: planner.search, heterogeneous, candidates, space, technique and techniques; costmodel,
datasets (clusters and devices, for changes), spec.
"""
