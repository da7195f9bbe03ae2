"""Ways in and ways out: command line, Python, notebooks, REST service.

Enters: typed text, documents, requests.
Leaves: answers as text, documents, pages; one line for a mistake.
Imports: every package; `executor` only where a run is started.
"""
