"""Predicts how fast placements of an experiment would be, from a few seconds of its own parts at work."""
