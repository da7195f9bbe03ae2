"""Megatron-LM: arguments of a command line, or the same in YAML.

Enters: a command line's flags, a YAML file of them (also under MODEL_ARGS), or a plan.
Leaves: settings; ``megatron.args`` and a launch line.
Imports: as its parent.
"""
