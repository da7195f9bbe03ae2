"""Explanations of a simulated step: breakdown, accuracy, sensitivities, sources, cost.

Enters: a ``Simulation`` and its ``Simulator``, measured steps, rental prices. Leaves: a
``Prediction`` with terms that add up, ``Errors``, ``Sensitivity``, ``TermDifference``. Imports:
spec; costmodel.symbolic, sharding, kernel_latency, pricing, lowering, memory, simulation.
"""
