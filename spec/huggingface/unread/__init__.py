"""What a configuration says that no reader takes: keys, and whole families.

Enters: documents, and the keys that a family's reader has read.
Leaves: assumptions, or one-line refusals that name features and the nearest family.
Imports: errors, inputs, config_keys.
"""
