"""torchtitan: TOML of the releases that read it, or command-line overrides.

Enters: a TOML file, overrides such as ``--parallelism.tensor_parallel_degree 8``, or a plan. A
Python configuration is never run.
Leaves: settings; ``torchtitan.toml`` and a launch line.
Imports: as its parent.
"""
