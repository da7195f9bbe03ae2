"""Catalogues and measured data, with their provenance.

Enters: names and files that a person gives. Leaves: nouns of spec, and tables of measurements.
Imports: spec only. Rooms: catalogue; then clusters, models and published, which read it;
measured and galvatron, which import no other room.
"""
