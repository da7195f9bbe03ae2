"""Models, clusters, workloads, strategies, plans, rules, reports: the nouns of every package.

Enters: documents and typed values. Leaves: frozen dataclasses, and reasons why they break rules.
Imports: no other package. Between rooms, lowest first: (errors, files, codec, numbers, units,
choices), strategy, model, workload, (schedules, parallel), cluster, program_rules, technique,
techniques, technique_values, program_values, plan, rules, (report, inputs), huggingface; a room
imports only rooms before it.
One call goes up, by a lazy import: ``Plan.check`` delegates to rules.
"""
