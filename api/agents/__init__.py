"""Verbs of the command line as tools of the Model Context Protocol.

Enters: the command group, calls of tools.
Leaves: a tool's schema, a command's text and JSON document.
Imports: `spec`, `api.cli`; the package `mcp` in one file.
"""
