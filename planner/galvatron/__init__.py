"""An exact search over Galvatron's space under Galvatron's costs."""
