"""Fitting of the bundled kernel price forests, and their held-out scores.

Run by a maintainer with the extra ``fit``; nothing on the way to a plan imports it.

Enters: timed grids of ``datasets``. Leaves: ``datasets/measured/NAME.npz``; a ``Score`` per split.
Imports: spec, datasets; costmodel.arrays, symbolic, kernel_latency, lowering; xgboost, lazily.
"""
