"""Timing jobs on ranks: kernels, links, copies, steps; drives without ranks.

Enters: a rank's context and a payload, or a folder.
Leaves: documents of profile rows, seconds, skipped measurements.
Imports: spec, executor, cases, store.
"""
