"""Training data: text, token files, images; the records of each task.

Enters: files of text, tokens or images, a plan's model and batch.
Leaves: ``Batch`` callables and ``Task``, the layout of a record.
Imports: spec.
"""
