"""What `htsrl check-env` looks at: the contract, reproduction, saved states, values, and how long steps take."""
