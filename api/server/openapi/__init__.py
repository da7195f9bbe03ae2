"""The service's description of itself: schemas, examples, problems.

Enters: types of bodies and answers.
Leaves: the OpenAPI document.
Imports: `spec`, `api.server`.
"""
