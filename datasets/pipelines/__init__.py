"""Stages of data recipes, one file a stage; ``shipped`` lists them.

Enters: documents in buckets, settings, sketches of all. Leaves: an outcome for every document.
Imports: recipes, sources, text_mining, spec; libraries of the extra ``data`` inside functions
alone, which run in a child process.
"""
