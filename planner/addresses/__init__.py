"""Addresses of a step's tensors: dynamic storage allocation.

Enters: allocation requests of a rank's step (``spec.report.allocation_trace``).
Leaves: an offset for each, and the bytes of the arena; what torch's caching allocator would hold.
Imports: ``spec``; PuLP with HiGHS inside ``mip`` alone.
"""
