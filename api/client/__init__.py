"""``sw.Client``: a running service behind the local functions' interface.

Enters: arguments of the public functions; an address and a token.
Leaves: handles, jobs and errors of ``import shardwright``.
Imports: `api.notebook`, `api.views`, `api.what_if`, bodies of `api.server.compute`; packages below.
"""
