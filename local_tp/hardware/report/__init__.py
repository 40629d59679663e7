"""A diagnosed machine, for people and programs."""
