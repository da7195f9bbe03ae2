"""Profiles on disk: complete, partial, and the machine's identity.

Enters: measured rows, a profile, the machine's facts.
Leaves: JSON files under the user's data folder; the newest profile of this machine.
Imports: spec, datasets.
"""
