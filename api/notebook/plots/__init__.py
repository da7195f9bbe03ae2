"""Pictures for notebooks, by matplotlib, which only these modules import."""
