"""The models of an algorithm beside its policy: critics, target networks, frozen references, a temperature.

An algorithm declares them by name; the runtime initialises them from the run's seed and the name, and keeps them in
rings beside the policy's, so that versions, digests, checkpoints, kills and resumes take care of them as of the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.config import Experiment
from htsrl.config.algorithm_settings import algorithm_of
from htsrl.config.run_facts import RunFacts
from htsrl.dataflow.parameters import FlatLayout, parameter_arrays, statistics_of
from htsrl.dataflow.shared_arrays import ArraySpec
from htsrl.dataflow.versions import POLICY
from htsrl.errors import ConfigError
from htsrl.numerics import OwnNumerics
from htsrl.policies.policy import Policy
from htsrl.seeding import network_seed
from htsrl.spaces import Interface


@dataclass(frozen=True)
class Model:
    """A model that an algorithm learns with, beside the policy."""

    build: Callable[[], nn.Module]
    """Makes it, with initial values from torch's own generator; parameters are float32."""
    optimizer: Literal["adam", "rmsprop", "sgd"] | None = "adam"
    """None: no gradient moves it."""
    copies: str | None = None
    """Begins equal to the model of this name, `policy` or one declared before; `Draft.follow` moves it after that."""


def with_target(name: str, build: Callable[[], nn.Module]) -> dict[str, Model]:
    """A model and `target_NAME`, which begins equal to it and follows it."""
    return {name: Model(build), f"target_{name}": Model(build, optimizer=None, copies=name)}


@dataclass(frozen=True)
class Models(Mapping[str, nn.Module]):
    """All models of one version, by name; the policy is called `policy`."""

    policy: Policy
    further: Mapping[str, nn.Module]

    def __getitem__(self, name: str) -> nn.Module:
        return self.policy if name == POLICY else self.further[name]

    def __iter__(self) -> Iterator[str]:
        return iter((POLICY, *self.further))

    def __len__(self) -> int:
        return 1 + len(self.further)


def declared_models(experiment: Experiment, interface: Interface) -> dict[str, Model]:
    """What the algorithm of an experiment declares; an algorithm without `models` has its policy alone."""
    algorithm: Any = algorithm_of(experiment.algorithm)(experiment.algorithm, RunFacts.of(experiment))
    if not hasattr(algorithm, "models"):
        return {}
    declared: dict[str, Model] = dict(algorithm.models(interface, experiment.network))
    for place, (name, model) in enumerate(declared.items()):
        before = (POLICY, *list(declared)[:place])
        if name == POLICY or not name.isidentifier():
            raise ConfigError(f"the algorithm's model {name!r} must have a name like a variable's, other than {POLICY}")
        if model.copies is not None and model.copies not in before:
            raise ConfigError(f"model {name!r} copies {model.copies!r}; declare that before it, there is {before}")
    return declared


def built_model(model: Model, name: str, seed: int) -> nn.Module:
    """Initialised from the run's seed and its name, without touching torch's global generator."""
    with OwnNumerics(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(network_seed(seed, name))
        return model.build()


def model_arrays(declared: Mapping[str, Model], policy: Policy, seed: int, num_slots: int) -> list[ArraySpec]:
    """The arrays of all rings beside the policy's; ConfigError for a model that cannot live there."""
    specs: list[ArraySpec] = []
    sizes = {POLICY: _sizes(policy)}
    for name, model in declared.items():
        module = built_model(model, name, seed)
        _check(name, module, built_model(model, name, seed))
        sizes[name] = _sizes(module)
        if model.copies is not None and sizes[name] != sizes[model.copies]:
            raise ConfigError(f"model {name!r} copies {model.copies!r}, which has other parameters; build them alike")
        vectors = 0 if model.optimizer is None else NUM_VECTORS[model.optimizer]
        specs += parameter_arrays(module, vectors, num_slots, name)
    return specs


def _sizes(module: nn.Module) -> tuple[object, ...]:
    shapes = tuple(tuple(parameter.shape) for parameter in module.parameters())
    return shapes, tuple(tuple(buffer.shape) for buffer in statistics_of(module).values())


def _check(name: str, module: nn.Module, again: nn.Module) -> None:
    kinds = {str(parameter.dtype) for parameter in module.parameters()} - {"torch.float32"}
    if kinds or not FlatLayout.of(module).size:
        found = ", ".join(kinds) or "no parameters"
        raise ConfigError(f"model {name!r} has {found}; models have parameters of float32")
    for (of, here), there in zip(module.state_dict().items(), again.state_dict().values(), strict=True):
        if not here.equal(there):
            raise ConfigError(
                f"{of} of model {name!r} begins with other numbers each time that it is made, so no two runs could be "
                "alike; draw them from torch's own generator (torch.randn, nn.init)"
            )
