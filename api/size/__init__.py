"""Sizes of trainings: devices, days and cost; fine-tunings side by side.

Enters: a model, a device, a number of tokens, a date, a budget, prices.
Leaves: a TrainingSize or FineTuning, and their documents.
Imports: api.planning and problem; planner, costmodel, datasets, spec.
"""
