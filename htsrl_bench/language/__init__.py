"""What a lag costs a language model: small tasks, several losses, lags and seeds."""
