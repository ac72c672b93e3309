"""Who works: executor, actor, learner and supervisor, as plain objects that know nothing of processes."""
