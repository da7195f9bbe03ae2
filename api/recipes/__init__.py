"""Data recipes: preparing data, estimating it, and showing prepared data.

Enters: a recipe's file or keys, a folder. Leaves: documents of prepared data and of estimates.
Imports: `spec`, `datasets`; the work is a child process's.
"""
