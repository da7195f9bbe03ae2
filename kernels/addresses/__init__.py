"""Allocators that give planned addresses: C++, compiled at first use.

Enters: sizes and offsets of a step's requests, and where passes begin and end.
Leaves: memory for tensors; counts of requests that were as planned, and of others.
Imports: ``torch``, ``spec``.
"""
