"""What learns from scored texts; an algorithm of one's own looks like one of these."""
