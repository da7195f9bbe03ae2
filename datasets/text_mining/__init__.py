"""Algorithms on texts that stages are made of: shingles, families, embeddings, filling of windows.

Enters: texts, arrays. Leaves: arrays, orders, labels.
Imports: recipes, sources, spec; libraries of the extra ``data`` inside functions alone.
"""
