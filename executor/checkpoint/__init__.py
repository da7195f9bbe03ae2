"""Checkpoints of a run: saving, verification, and loading under any plan.

Enters: an ``Engine`` or ``Reference``, ``CheckpointSettings``, a folder.
Leaves: committed step folders with a manifest; restored weights, states and step.
Imports: spec, ``launch``, ``groups``, ``stage``, ``engine``, ``reference``, ``technique``,
``torch_compat``; ``settings`` and ``folders`` load no torch.
"""
