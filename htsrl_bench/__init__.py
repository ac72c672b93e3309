"""Benchmarks: ratios, with both sides in one interleaved run."""
