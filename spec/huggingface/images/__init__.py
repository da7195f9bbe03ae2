"""Models that read images: a vision tower, a projector, and a language tower.

Enters: parsed ``config.json`` documents with an inner one for each tower.
Leaves: ``ModelSpec`` of two towers; the size of an image is an assumption where any is allowed.
Imports: errors, model, the readers of language towers.
"""
