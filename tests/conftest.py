"""Being here puts this folder on the path, for helpers that several suites import."""

import signal

# A shell that runs the suite in the background lets it ignore Ctrl-C, and everything it starts; some tests send one.
signal.signal(signal.SIGINT, signal.default_int_handler)
