"""Cost model: lower, price, simulate, explain and compare plans; loads no torch.

Enters: a plan (or layers and strategies), a measured cluster, a framework profile. Leaves:
predicted step time, memory and breakdown, each with its source; timelines; calibrations. Imports:
spec, datasets. Rooms, importing only earlier ones: symbolic; technique and program_technique (the
contract); ops; layers; sharding; techniques; kernel_latency; pricing; lowering; memory; simulation;
explain. Beside them: checkpoint,
calibration, fitting, galvatron.
"""
