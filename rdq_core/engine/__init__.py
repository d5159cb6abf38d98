"""Decides what is done with each task. Storage, time and randomness come in through `ports`."""
