"""gradient_census: a technique of the tests alone, to plug into every package.

Once a block's gradients are complete, every rank counts their squares: ``each`` sums them over all
ranks of the stage at once, in a process group of its own; ``held`` adds them up where they are,
which needs no message and as many bytes as the gradients, and lets old ones fade with the update.
"""
