"""Who works: executor, actor and learner, as plain objects that know nothing of processes."""
