"""What processes need anywhere: signals, names, deaths, and points to be killed at."""
