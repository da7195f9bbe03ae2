"""Readers of training logs.

Enters: the lines of a log.
Leaves: a RunLog: steps, memory, and the configuration where the log prints it.
Imports: spec.
"""
