"""Preparation of data by a recipe: stage after stage, in any number of processes, resumable.

Enters: a recipe and a folder. Leaves: token shards, documents, ``data.json``.
Imports: recipes, sources, pipelines; it runs in a child process, ``python -m
shardwright.datasets.preparation.child``.
"""
