"""Environments: how they are made, what is asked of them, and toys to try things on."""
