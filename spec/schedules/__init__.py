"""Pipeline schedules as explicit orders of passes.

Enters: schedule kind, stage, pipeline degree, virtual stages, micro-batches, action text.
Leaves: the passes of a stage in order, and the chunk at each position.
Imports: errors.
"""
