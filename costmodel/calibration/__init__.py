"""Calibration: factors fitted to measured steps, memory constants to measured peaks.

Enters: measured steps or peaks, each with a function that predicts it under factors. Leaves: a
``Calibration`` (factors, half width of the interval), a ``MemoryCalibration``. Imports: spec;
costmodel.arrays.
"""
