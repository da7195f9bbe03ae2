"""Other frameworks' configurations, read as plans and written from plans.

Enters: a framework's file with what it leaves out, or a plan. A framework is a folder of one shape:
``read`` (keys to settings), ``write`` (plan to files), ``limits`` (what its files cannot say beyond
what its stack cannot run) and ``launch``; ``shipped.FRAMEWORKS`` lists them.
Leaves: plans with assumptions; files, a launch line and what was lost.
Imports: spec, datasets, costmodel, planner; api: problem, planning.
"""
