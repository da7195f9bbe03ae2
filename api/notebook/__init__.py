"""Python handles: rich reprs, DataFrames, pictures.

Enters: reports, simulations, explanations, comparisons.
Leaves: handle objects; pandas and matplotlib are loaded on use.
Imports: every room of `api` but `cli`, `client` and `server`; packages below.
"""
