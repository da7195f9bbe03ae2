"""Clusters, training stacks, and the profiles and calibrations measured on them.

Enters: catalogue names, counts and rates; measured rows and fitted constants.
Leaves: ``ClusterSpec``, ``StackSpec``, ``MachineProfile``, ``Calibration``.
Imports: choices, schedules.
"""
