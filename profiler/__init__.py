"""Measure this machine into a MachineProfile.

Enters: a budget of seconds, ranks, a device, a folder on a drive.
Leaves: kernels, links, copies, storage and host overheads, as a stored ``MachineProfile``.
Imports: spec, datasets, costmodel (overhead), kernels (cases), executor (ranks and devices).
Between rooms: cases and store, then timing (reads both), then overhead, then ``sweep``.
"""
