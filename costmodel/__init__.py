"""Lower, price, simulate, explain and compare plans; loads no torch."""
