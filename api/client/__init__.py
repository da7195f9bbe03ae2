"""``sw.Client(url)``: the functions of ``import shardwright`` against a service."""
