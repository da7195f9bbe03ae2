"""Folders and files of checkpoints, on this machine or by URL; loads no torch.

Enters: a typed folder. Leaves: paths, their names, locks, commits and reads of regular files.
Imports: spec.
"""
