"""Tensor programs of TVM under random schedules, walked and timed on this machine's cores.

Run by a maintainer with the extra ``programs`` (``apache-tvm``); nothing else imports it.

Enters: a seed, a number of programs. Leaves: ``datasets/measured/programs.npz``.
Imports: costmodel (programs); tvm, lazily.
"""
