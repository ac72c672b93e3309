"""Batched simulators: whatever steps many environments in one call is a lane of them."""
