"""Simulation of one step: passes in schedule order, messages, memory, timeline.

Enters: a plan, its ``Lowering``, a ``Pricer`` of the machine and framework profile. Leaves: a
``Simulation`` (step time, stage runs, memory rows), a ``Timeline``. Imports: spec;
costmodel.arrays, symbolic, sharding, pricing, technique, techniques, lowering, memory.
"""
