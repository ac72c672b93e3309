"""Encoders: from the leaves of an observation to one vector of features."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from htsrl.config import Network
from htsrl.errors import ConfigError
from htsrl.policies.activations import FIELD_PREFIX
from htsrl.policies.choice import encoder_of
from htsrl.policies.half_precision import HalfEncoder, chosen_precision
from htsrl.policies.images import ImpalaCnn, NatureCnn
from htsrl.policies.layers import Mlp
from htsrl.spaces import ObservationLeaf

Leaves = Mapping[str, ObservationLeaf]


class Flat(nn.Module):
    """A leaf as a vector: numbers as they are, bytes from 0 to 1, choices one-hot."""

    def __init__(self, leaf: ObservationLeaf) -> None:
        super().__init__()
        self._scale = 1 / 255 if leaf.dtype == "uint8" and leaf.categories is None else 1.0
        self._categories, self._starts = leaf.categories, leaf.starts
        self.num_features = leaf.width

    def forward(self, obs: Tensor) -> Tensor:
        flat = obs if obs.dim() == 2 else obs.reshape(len(obs), -1)
        if self._categories is None:
            # Asked for what they already are, torch takes as long as for an operation.
            numbers = flat if flat.dtype is torch.float32 else flat.float()
            return numbers * self._scale if self._scale != 1.0 else numbers
        elements = zip(flat.long().unbind(dim=1), self._starts, self._categories, strict=True)
        one_hot = [nn.functional.one_hot(element - start, count) for element, start, count in elements]
        return torch.cat(one_hot, dim=1).float()


class Encoder(nn.Module):
    """An encoder for each leaf, side by side, and fully connected layers above, unless a lone image needs none."""

    def __init__(self, leaves: Leaves, network: Network) -> None:
        super().__init__()
        is_half = chosen_precision(leaves, network) == "bfloat16"
        parts = [_part(leaf, network, is_half) for leaf in leaves.values()]
        width = sum(part.num_features for part in parts)
        self.parts = nn.ModuleList(parts)
        self._named_parts = tuple(zip(leaves, parts, strict=True))  # what `forward` goes through
        self.sees_images = any(not isinstance(part, Flat) for part in parts)
        is_lone_image = self.sees_images and len(self.parts) == 1
        self.mlp = None if is_lone_image else Mlp(width, network.hidden_sizes, network.activation)
        self.num_features = width if self.mlp is None else self.mlp.num_features
        self._keeping = {name: _activation_fields(name, part) for name, part in self._named_parts}
        self.activation_shapes = {field: shape for fields in self._keeping.values() for field, shape in fields.items()}
        """What `forward` can keep, by the names of the fields."""

    def forward(self, observations: Mapping[str, Tensor], keep: dict[str, Tensor] | None = None) -> Tensor:
        """Activations are put into `keep` if that is given; those among the observations are not computed again."""
        return self.above(self.side_by_side(observations, keep))

    def side_by_side(self, observations: Mapping[str, Tensor], keep: dict[str, Tensor] | None = None) -> Tensor:
        """What the leaves' encoders make of them. Without images it is the same for all that see these leaves."""
        parts = [
            self._of_nature(part, name, observations, keep)
            if isinstance(part, NatureCnn)
            else part.forward(observations[name])
            for name, part in self._named_parts
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def above(self, side_by_side: Tensor) -> Tensor:
        mlp = self.mlp  # once: to find a module takes as long as an operation
        return side_by_side if mlp is None else mlp.forward(side_by_side)

    def _of_nature(
        self, part: NatureCnn, name: str, observations: Mapping[str, Tensor], keep: dict[str, Tensor] | None
    ) -> Tensor:
        fields = self._keeping[name]
        kept = [observations[field] for field in fields] if fields.keys() <= observations.keys() else None
        activations = part.activations(observations[name], kept)
        if keep is not None:
            keep.update(zip(fields, part.to_keep(activations), strict=True))
        return activations[-1].float()

    @property
    def activation_dtype(self) -> str:
        """Of what `forward` can keep."""
        return "int16" if any(isinstance(part, HalfEncoder) and part.is_half for part in self.parts) else "float32"


def _activation_fields(name: str, part: nn.Module) -> dict[str, tuple[int, ...]]:
    shapes = part.activation_shapes if isinstance(part, NatureCnn) else ()
    return {f"{FIELD_PREFIX}/{name}/{i}": shape for i, shape in enumerate(shapes)}


def encoder_for(leaves: Leaves, network: Network) -> Encoder:
    """The encoder that `network` asks for."""
    asks_for_images = network.encoder in ("nature_cnn", "impala")
    if asks_for_images and not any(len(leaf.shape) == 3 and leaf.categories is None for leaf in leaves.values()):
        shapes = ", ".join(f"{name} {leaf.shape}" for name, leaf in leaves.items())
        raise ConfigError(f"encoder={network.encoder} needs an image, and there is none among {shapes}; use mlp")
    return Encoder(leaves, network)


def _part(leaf: ObservationLeaf, network: Network, is_half: bool) -> Flat | NatureCnn | ImpalaCnn:
    encoder = encoder_of(leaf, network)
    if encoder == "mlp":
        return Flat(leaf)
    return ImpalaCnn(leaf, is_half) if encoder == "impala" else NatureCnn(leaf, is_half)
