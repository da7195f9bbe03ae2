"""Validation rules of models, clusters, workloads, layer strategies and plans.

Enters: nouns, before or inside a plan.
Leaves: ``Problem``s and violations, or the reason why something is illegal or not run.
Imports: errors, choices, strategy, model, workload, cluster, schedules, parallel, plan,
technique, technique_values, techniques.
"""
