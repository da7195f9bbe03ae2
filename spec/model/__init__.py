"""Models as towers of ordered layers, and each layer's parameters.

Enters: sizes and layer kinds from a configuration or a document.
Leaves: ``ModelSpec``, its layers, parameter shapes, tower contexts, sizes that tp must divide.
Imports: errors; ``experts`` also strategy.
"""
