"""Fitting what ships: trains the forests of kernel prices and scores them on rows kept back.

Run by a maintainer with the extra ``fit``; nothing on the way to a plan imports it.
"""
