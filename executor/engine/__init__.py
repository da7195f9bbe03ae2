"""One rank of a run: chunks, pipeline and optimizer, stepped together.

Enters: a plan, a rank, ``BuildOptions``, batches of data.
Leaves: ``Engine`` and its ``StepResult``.
Imports: spec, kernels, ``groups``, ``data``, ``stage``, ``host``, ``pipeline``, ``technique``.
"""
