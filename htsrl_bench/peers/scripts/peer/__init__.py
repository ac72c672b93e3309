"""Programs that train in other frameworks: each runs in a virtual environment of its own, without htsrl.

`python -m peer.NAME JOB_FILE VARIANT READINGS_FILE` trains until it is killed.
"""
