"""Process groups and meshes of a plan, and ranks that exchange data.

Enters: a plan, this rank.
Leaves: ``ProcessGroups``, ``TiedGroup``, ``TokenExchange``; ranks and devices of a plan.
Imports: spec, ``models``; ``rank_layout`` loads no torch.
"""
