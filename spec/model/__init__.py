"""The model as towers of ordered layers, and the parameters of each layer.

Enters: sizes and layer kinds from a configuration or a document.
Leaves: ``ModelSpec``, its layers, parameter shapes, tower contexts, sizes that tp must divide.
Imports: errors; ``experts`` also strategy.
"""
