"""Islands: executors and actors on other machines, and what passes between them and the learner. See docs/cluster.md.

Nothing here imports Ray but `connection.py` and `islands.py`, and nothing in htsrl imports those before a run asks for
them.
"""
