"""Measure this machine into a MachineProfile."""
