"""Published training runs of others, with their layouts.

Enters: tables of runs (CSV) and the names used in them.
Leaves: ``PublishedRun``, and its names in the catalogue's terms.
Imports: catalogue, spec.
"""
