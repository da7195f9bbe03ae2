"""Kernel seconds: measured on machine or device, learned, or by roofline.

Enters: a ``Kernel`` (operation, shape, format), a catalogue device, a machine profile. Leaves:
``Latency`` (seconds and source), ``KernelPrediction`` with an interval. Imports: spec, datasets;
costmodel.arrays.
"""
