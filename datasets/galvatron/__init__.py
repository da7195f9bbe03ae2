"""Profiles in Hetu-Galvatron's file formats, and their reader.

Enters: a folder of its profilers' files, model name, format, node counts.
Leaves: ``GalvatronProfile`` in Galvatron's units.
Imports: spec.
"""
