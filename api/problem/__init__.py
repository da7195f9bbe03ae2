"""Resolution of typed inputs, plan files and stored measurements.

Enters: texts, documents and objects of the command line, the service and Python.
Leaves: a Problem, a checked Plan, pins, prices, and assumptions for what was left out.
Imports: planner.solve, space, technique and techniques; profiler.store, executor.launch and groups
(what runs here), costmodel, datasets, spec.
"""
