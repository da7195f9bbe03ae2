"""Answers to what-if questions: the same plan and the best one.

Enters: a plan, its setting, a question, and a Pricing that prices and solves settings.
Leaves: rows to answer, and an Answer each.
Imports: planner.solve (the Solution of a setting); costmodel (rates, memory rule), datasets
(clusters), spec.
"""
