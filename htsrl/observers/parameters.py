"""A version's parameters for observers, copied out of the ring while it still holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htsrl.dataflow.versions import is_intact
from htsrl.observers.observer import Parameters
from htsrl.roles.shared import Shared

if TYPE_CHECKING:
    from htsrl.dataflow.parameters import ParameterRing


def read_parameters(ring: ParameterRing, shared: Shared, version: int) -> Parameters | None:
    """By name, and read-only; None where a later version may have been written over it, before or meanwhile."""
    copies = {name: x.detach().cpu().numpy().copy() for name, x in ring.module(version).named_parameters()}
    for copy in copies.values():
        copy.flags.writeable = False
    return copies if is_intact(version, shared.exchange.published_version, len(ring.modules)) else None
