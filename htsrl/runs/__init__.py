"""A run's folder, its lock, its course, and how it is resumed."""
