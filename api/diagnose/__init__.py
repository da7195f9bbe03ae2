"""A run that was measured, explained by its configuration, with changes ranked by gain.

Enters: a run's log or configuration, a measured step, a profiler's trace.
Leaves: a Diagnosis: bars from peak to the measured MFU, noise of the steps, changes.
Imports: api.frameworks, planning, problem and views; costmodel, datasets, spec.
"""
