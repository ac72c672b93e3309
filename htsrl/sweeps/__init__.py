"""Several runs as one undertaking: a group of seeds, and searches for better settings."""
