"""Experiments of the systems in htsrl.systems, each a program of its own."""
