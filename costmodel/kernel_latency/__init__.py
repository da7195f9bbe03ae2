"""Kernel seconds: measured on the machine or its kind, learned from others, or by roofline.

Enters: a ``Kernel`` (operation, shape, format), a catalogue device, a machine profile. Leaves:
``Latency`` (seconds and source), ``KernelPrediction`` with an interval. Imports: spec, datasets; no
other room of costmodel.
"""
