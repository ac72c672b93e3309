"""Asynchronous training, as in GA3C and IMPALA: nobody waits for anybody but for room in the queue.

An environment begins its next rollout while the queue has room for it, every step is answered by the newest version,
and an update takes the oldest complete rollouts, as many as there are environments. How far the data are behind depends
on the machine's mood, and is measured. The length of the queue bounds how many updates a complete rollout waits for;
while one is under way, any number of versions may pass.
"""

from __future__ import annotations


class Async:
    """The newest version acts."""

    def answering_version(self, env: int, ticket: int, published_version: int) -> int:
        return published_version
