"""Optimizers over one flat vector, whose state is memory that they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

from htsrl.config.algorithm_settings import CommonSettings

NUM_VECTORS = {"adam": 2, "rmsprop": 1, "sgd": 0}
"""How many vectors like the parameters an optimizer's state consists of."""

BLOCK = 1 << 15
MIN_NORMAL = torch.finfo(torch.float32).tiny


class Optimizer(Protocol):
    """Moves parameters by a gradient."""

    def step(self, learning_rate: float) -> None: ...


class Adam:
    """Torch's own, in one pass over the vectors."""

    def __init__(self, settings: CommonSettings, vectors: Tensor, steps: Tensor, gradient: Tensor) -> None:
        """`vectors` are the parameters and the running means of the gradient and of its square."""
        self._epsilon = settings.optimizer_epsilon
        parameters, mean, mean_square = vectors
        largest_squares: list[Tensor] = []  # of a variant, amsgrad
        self._mean = mean
        self._state = [parameters], [gradient], [mean], [mean_square], largest_squares, [steps]

    def scale_momentum(self, factor: float) -> None:
        """Of the running mean of gradients."""
        self._mean.mul_(factor)

    def step(self, learning_rate: float) -> None:
        adam(
            *self._state,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self._epsilon,
            maximize=False,
        )


class RmsProp:
    """As torch's to the bit, in a quarter of the time: a block after the other, so that what is needed again
    is still in the processor's cache, and without square roots of zero, which take 30 times longer than others. A
    weight behind a unit that is never active has no other gradient than zero.
    """

    def __init__(self, settings: CommonSettings, vectors: Tensor, steps: Tensor, gradient: Tensor) -> None:
        """`vectors` are the parameters and the running mean of the gradient's square."""
        self._decay, self._epsilon = settings.rmsprop_decay, settings.optimizer_epsilon
        self._steps = steps
        size = BLOCK if vectors.device.type == "cpu" else vectors.shape[1]
        self._blocks = list(zip(*(x.split(size) for x in (*vectors[:2], gradient)), strict=True))
        self._root = torch.empty(min(size, vectors.shape[1]), device=vectors.device)

    def step(self, learning_rate: float) -> None:
        self._steps += 1
        for parameters, mean_square, gradient in self._blocks:
            mean_square.mul_(self._decay).addcmul_(gradient, gradient, value=1 - self._decay)
            # The root of that vanishes beside an epsilon of 1e-11 or more.
            root = torch.clamp(mean_square, min=MIN_NORMAL, out=self._root[: len(gradient)])
            parameters.addcdiv_(gradient, root.sqrt_().add_(self._epsilon), value=-learning_rate)


class Sgd:
    """Plain stochastic gradient descent, which remembers nothing."""

    def __init__(self, settings: CommonSettings, vectors: Tensor, steps: Tensor, gradient: Tensor) -> None:
        """`vectors` are the parameters alone."""
        (self._parameters,) = vectors
        self._steps = steps
        self._gradient = gradient

    def step(self, learning_rate: float) -> None:
        self._steps += 1
        self._parameters.add_(self._gradient, alpha=-learning_rate)


MakeOptimizer = Callable[[CommonSettings, Tensor, Tensor, Tensor], Optimizer]
OPTIMIZERS: Mapping[str, MakeOptimizer] = {"adam": Adam, "rmsprop": RmsProp, "sgd": Sgd}


def optimizer_of(settings: CommonSettings, vectors: Tensor, steps: Tensor, gradient: Tensor) -> Optimizer:
    """The one that the settings ask for."""
    return OPTIMIZERS[settings.optimizer](settings, vectors, steps, gradient)
