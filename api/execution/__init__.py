"""Runs of plans on this machine, held against predictions.

Enters: a plan and options of a run.
Leaves: the ``execute`` document; a calibration from measured plans.
Imports: `spec`, `costmodel`, `executor`, `profiler`, `api.problem`, `api.planning`.
"""
