"""Where batches come from: a whole interval, the head of a queue, or what a recorded run learned from."""
