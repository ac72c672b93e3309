"""Networks that turn observations into a distribution over actions and a value."""
