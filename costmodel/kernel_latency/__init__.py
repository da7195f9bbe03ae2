"""Kernel seconds from measurements, where a machine has been profiled."""
