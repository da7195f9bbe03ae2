"""Galvatron's own cost semantics, to price its plans and ours alike.

Enters: a ``GalvatronJob`` (profile, layers, batch, devices) and a ``GalvatronPlan``. Leaves: a
``GalvatronCost``, and a ``Prediction`` in a report's terms. Imports: spec, datasets;
costmodel.kernel_latency, lowering (FLOPs and peaks of reports only).
"""
