"""Bytes and seconds of every legal strategy of a layer, as arrays.

Enters: strategies of a layer, and the context of a stage (ranks, samples, link levels).
Leaves: option tables for searches and estimates, pass tables for bounds.
Imports: spec, costmodel and planner/space.
"""
