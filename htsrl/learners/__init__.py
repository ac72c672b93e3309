"""Several learners: rules that say when replicas average, and the arithmetic of it."""
