"""The nouns: models, clusters, workloads, strategies, plans, reports, timelines."""
