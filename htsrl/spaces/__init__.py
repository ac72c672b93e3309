"""What the rest of htsrl needs to know of Gymnasium's spaces."""

from htsrl.spaces.actions import ActionLayout, action_layout
from htsrl.spaces.interface import Interface
from htsrl.spaces.observations import ObservationLeaf, observation_leaves

__all__ = ["ActionLayout", "Interface", "ObservationLeaf", "action_layout", "observation_leaves"]
