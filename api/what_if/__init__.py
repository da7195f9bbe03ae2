"""Answers to what-if questions for command line, service and Python.

Enters: a plan, typed changes, and how to price and search.
Leaves: a WhatIf, its document, and its texts.
Imports: api.problem, planning and views; planner.what_if and solve; costmodel, datasets, spec.
"""
