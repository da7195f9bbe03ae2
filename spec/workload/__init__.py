"""The training task: batch, sequence, number formats, optimizer, trained weights.

Enters: the values of flags and documents.
Leaves: ``Workload``, ``DtypeRecord``, ``LearningRate``, each layer's ``LayerTraining``.
Imports: errors, choices, model.
"""
