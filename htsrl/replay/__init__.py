"""Time travel: any stretch of a run's trajectory again, to the bit, and checked against the run's digest."""

from htsrl.replay.replay import replay
from htsrl.replay.stretch import Replay

__all__ = ["Replay", "replay"]
