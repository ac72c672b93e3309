"""What a few runs say about a method: means with intervals, and rliable's numbers; pure functions of scores."""
