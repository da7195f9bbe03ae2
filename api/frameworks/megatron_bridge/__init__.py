"""Megatron Bridge: a saved run configuration in YAML, and overrides of a recipe.

Enters: a YAML file, or a plan.
Leaves: settings; ``megatron_bridge.yaml`` and a launch line.
Imports: as its parent, and megatron, whose arguments its fields become.
"""
