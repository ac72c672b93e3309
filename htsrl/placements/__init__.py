"""Where the roles live: all in this process, or each in a process of its own."""
