"""Being here puts this folder on the path, for helpers that several suites import."""
