"""``plan validate`` and ``plan calibrate``: measured runs as questions.

Enters: tables of measured runs or peaks.
Leaves: scores by source, calibrations, nearest runs.
Imports: `spec`, `datasets`, `costmodel`, `planner`, `api.problem`, `api.planning`, `api.catalogue`.
"""
