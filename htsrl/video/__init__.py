"""Films of what an agent does: the environment's frames, with return, value and action probabilities beside them."""

from htsrl.video.record import Recording, record

__all__ = ["Recording", "record"]
