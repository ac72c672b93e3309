"""What every worker did and whom it waited for: recorded in shared memory, written to the run's folder, summed up."""
