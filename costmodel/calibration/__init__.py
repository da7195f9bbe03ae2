"""Factors fitted to measured steps."""
