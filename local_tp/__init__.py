"""Runs one language model over the devices of one PC, and says why the way it does."""
