"""LLaMA-Factory: its YAML, read only.

Enters: a YAML file.
Leaves: settings.
Imports: as its parent, and deepspeed for its keys.
"""
