"""Profiles in Hetu-Galvatron's file formats, and their reader."""
