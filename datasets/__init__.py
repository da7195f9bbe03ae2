"""Catalogues and measured data, with their provenance."""
