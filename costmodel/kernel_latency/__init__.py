"""Kernel seconds from measurements: of this machine, of its kind, or learned from others."""
