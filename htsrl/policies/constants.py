"""Numbers that a policy has in common in torch and in NumPy."""

EPSILON = 1e-8
"""Added to variances."""
MAX_DEVIATIONS = 10.0
"""What is further out is cut off there."""
FORBIDDEN = -1e8
"""Logit of what a mask forbids: its probability is exactly 0, and nothing but finite numbers comes of it."""
