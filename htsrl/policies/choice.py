"""Which network sees which leaf of an observation; without torch, for those who only want to say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from htsrl.config import Network
from htsrl.spaces import ObservationLeaf

MIN_NATURE_SIZE = 36  # below this its third convolution has nothing left to look at


def encoder_of(leaf: ObservationLeaf, network: Network) -> Literal["mlp", "nature_cnn", "impala"]:
    """The encoder that the network asks for; `auto` takes for images what they are large enough for."""
    if network.encoder == "mlp" or len(leaf.shape) != 3 or leaf.categories is not None:
        return "mlp"
    if network.encoder != "auto":
        return network.encoder
    if not leaf.is_image:
        return "mlp"
    return "nature_cnn" if fits_nature(leaf) else "impala"


def sees_images(leaves: Mapping[str, ObservationLeaf], network: Network) -> bool:
    """Whether one of its own encoders is for images."""
    return network.policy is None and any(encoder_of(leaf, network) != "mlp" for leaf in leaves.values())


def fits_nature(leaf: ObservationLeaf) -> bool:
    return min(leaf.image_size) >= MIN_NATURE_SIZE


def choices_for(leaves: Mapping[str, ObservationLeaf], network: Network) -> list[str]:
    """What `auto` chose that is not the usual, as lines."""
    if network.encoder != "auto" or network.policy is not None:
        return []
    return [
        f"{name}: images of {leaf.image_size[0]}x{leaf.image_size[1]} are seen by IMPALA's network (--encoder impala), "
        f"for the usual Nature CNN needs {MIN_NATURE_SIZE}x{MIN_NATURE_SIZE}"
        for name, leaf in leaves.items()
        if encoder_of(leaf, network) == "impala"
    ]
