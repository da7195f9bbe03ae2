"""verl: the actor's part of a trainer's YAML, as a training plan.

Enters: a trainer's configuration (such as a run's ``.hydra/config.yaml``), or a plan.
Leaves: settings; ``verl.yaml`` of overrides and a launch line.
Imports: as its parent, and megatron, whose arguments its fields become.
"""
