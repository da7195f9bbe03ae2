"""DeepSpeed: its JSON, or arguments of transformers' Trainer that name one.

Enters: ``ds_config.json``, a JSON or YAML file of training arguments, or a plan.
Leaves: settings; ``ds_config.json``, ``training_arguments.json`` and a launch line.
Imports: as its parent.
"""
