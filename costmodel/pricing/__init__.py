"""Prices: seconds of kernels, collectives, passes and units on one machine.

Enters: a ``Machine`` (cluster, profile or calibration, rate changes), the framework profile,
lowered work. Leaves: ``Latency``, ``PassCost``, ``UnitCost``; a ``Pricer`` per device group and
link span. Imports: spec, datasets; costmodel.symbolic, sharding, kernel_latency.
"""
