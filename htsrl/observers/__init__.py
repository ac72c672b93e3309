"""Code of the user's that watches a run: it sees reports, can ask to stop, and cannot change a bit."""
