"""The user's own network (`--policy MODULE:CLASS`): it makes the features; core, heads, masks and scales are ours."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from htsrl.config import NetworkFactory
from htsrl.errors import ConfigError
from htsrl.spaces import ObservationLeaf
from htsrl.spaces.observations import MASK_KEY, parts_of

PROTOCOL = (
    "it must be callable with the observation space and return a torch.nn.Module that has num_features and whose "
    "forward makes of observations, a row each, a float32 tensor [rows, num_features]"
)


class CustomEncoder(nn.Module):
    """Gives the user's network observations in the structure of their space, as tensors with a row each."""

    def __init__(self, network: nn.Module, space: spaces.Space[Any], num_features: int) -> None:
        super().__init__()
        self.network = network
        self.num_features = num_features
        self._space = space

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        features: Tensor = self.network(_structured(self._space, observations, "obs"))
        return features


def custom_encoder(
    source: str | NetworkFactory, space: spaces.Space[Any], leaves: Mapping[str, ObservationLeaf]
) -> CustomEncoder:
    """The network that `source` makes, after a look at whether it keeps to the protocol."""
    factory = _imported(source) if isinstance(source, str) else source
    name = source if isinstance(source, str) else getattr(source, "__qualname__", repr(source))
    try:
        network = factory(space)
    except Exception as error:
        raise ConfigError(f"policy={name} could not be made: {type(error).__name__}: {error}; {PROTOCOL}") from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"policy={name} made a {type(network).__name__}; {PROTOCOL}")
    num_features = getattr(network, "num_features", None)
    if not isinstance(num_features, int) or num_features < 1:
        raise ConfigError(f"policy={name} has num_features={num_features!r}; {PROTOCOL}")
    _refuse_layers(name, network)
    encoder = CustomEncoder(network, space, num_features)
    _try_out(name, encoder, leaves)
    return encoder


def _imported(source: str) -> NetworkFactory:
    module, _, qualified = source.partition(":")
    if not (module and qualified):
        raise ConfigError(f"policy={source!r} must be MODULE:CLASS, such as my_networks:Residual")
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the user's code
        way_out = "; put it into a module of its own, not into a script" if module == "__main__" else ""
        if near := difflib.get_close_matches(qualified, dir(sys.modules.get(module)), n=1):
            way_out = f"; did you mean {near[0]}?"
        raise ConfigError(f"policy={source} cannot be imported: {type(error).__name__}: {error}{way_out}") from error
    if not callable(found):
        raise ConfigError(f"policy={source} is a {type(found).__name__}, which cannot be called; {PROTOCOL}")
    return found  # type: ignore[no-any-return]


def _refuse_layers(name: str, network: nn.Module) -> None:
    """What would make a row depend on its neighbours or on a hidden generator."""
    for path, module in network.named_modules():
        if isinstance(module, _BatchNorm):
            raise ConfigError(
                f"policy={name} has batch normalisation ({path}: {type(module).__name__}): an action would depend on "
                "which environments happened to be ready with it, and no two runs be alike; use "
                "nn.LayerNorm or nn.GroupNorm"
            )
        if isinstance(module, _DropoutNd) and module.p > 0:
            raise ConfigError(
                f"policy={name} has dropout ({path}, p={module.p}): it draws from a generator that depends on who "
                "computes what when, and the probabilities learned from would not be those acted with; leave it out"
            )
    for path, parameter in network.named_parameters():
        if parameter.dtype != torch.float32:
            raise ConfigError(f"policy={name} has a parameter of {parameter.dtype} ({path}); use torch.float32")


def _try_out(name: str, encoder: CustomEncoder, leaves: Mapping[str, ObservationLeaf]) -> None:
    rows = 2
    blanks = {
        key: torch.from_numpy(leaf.blank).expand(leaf.shape).repeat(rows, *([1] * len(leaf.shape)))
        for key, leaf in leaves.items()
    }
    before = [buffer.clone() for buffer in encoder.buffers()]
    try:
        with torch.no_grad():
            features, again = encoder(blanks), encoder(blanks)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        seen = ", ".join(f"{key} {tuple(blank.shape)} {blank.dtype}" for key, blank in blanks.items())
        raise ConfigError(
            f"policy={name} failed on {rows} rows of observations ({seen}): {type(error).__name__}: {error} (line "
            f"{place.lineno} of {place.filename}); observations come as they are, bytes too: x.float() / 255"
        ) from error
    is_tensor = isinstance(features, Tensor)
    if not is_tensor or features.shape != (rows, encoder.num_features) or features.dtype != torch.float32:
        shown = f"{features.dtype} {tuple(features.shape)}" if is_tensor else type(features).__name__
        raise ConfigError(
            f"policy={name} has num_features={encoder.num_features}, but made {shown} of {rows} rows; let them "
            "agree, as torch.float32"
        )
    if not torch.equal(features, again):
        raise ConfigError(
            f"policy={name} makes other features of the same observations each time (dropout? noise?), so no two runs "
            "could be alike; let it be a function of its parameters and its input"
        )
    if any(not torch.equal(old, new) for old, new in zip(before, encoder.buffers(), strict=True)):
        raise ConfigError(
            f"policy={name} changes its buffers when it is called, so a result would depend on who called it before; "
            "let it be a function of its parameters and its input"
        )


def _structured(space: spaces.Space[Any], observations: Mapping[str, Tensor], name: str) -> Any:
    if isinstance(space, spaces.Dict):
        seen = [(key, part) for key, part in parts_of(space) if (name, key) != ("obs", MASK_KEY)]
        return {key: _structured(part, observations, f"{name}/{key}") for key, part in seen}
    if isinstance(space, spaces.Tuple):
        return tuple(_structured(part, observations, f"{name}/{i}") for i, part in parts_of(space))
    return observations[name]
