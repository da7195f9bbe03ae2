"""The command ``plan``: flags and verbs, results, and one-line errors.

Enters: command lines.
Leaves: an exit code, the text or JSON of a result, files that were asked for.
Imports: ``spec`` at the top; inside functions the rest of ``api``, and of the packages below types
and entry points. ``api.server.serve`` starts the service.
"""
