"""Reports, timelines and the names of work that prediction and run share.

Enters: plans, and figures of a prediction, search or run.
Leaves: ``Report`` and its document, ``Timeline`` and its trace, ``Kernel``, ``Collective``, marks.
Imports: errors, codec, choices, schedules, plan.
"""
