"""accelerate: its YAML with FSDP, DeepSpeed or a mesh of several axes.

Enters: a file that ``accelerate config`` writes, or a plan.
Leaves: settings; ``accelerate.yaml`` and a launch line.
Imports: as its parent, and deepspeed for its keys.
"""
