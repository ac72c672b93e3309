"""The settings of the network: encoder, recurrent core, heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

NetworkFactory = Callable[..., Any]
"""Returns a torch.nn.Module that makes features of observations, given the observation space."""


@dataclass(frozen=True)
class Network:
    """The policy and value network."""

    encoder: Literal["auto", "mlp", "nature_cnn", "impala"] = "auto"
    """How images are seen: by the Nature CNN, by IMPALA's residual network, or as flat vectors. `auto` takes the Nature
    CNN for three axes of bytes, IMPALA's network where a side is below 36."""
    policy: str | NetworkFactory | None = None
    """A network of your own in place of the encoder: MODULE:CLASS, or in Python also the class itself."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the MLP's layers; empty makes the policy linear."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity of the MLP."""
    separate_value: bool | None = None
    """Give the value its own network, beside the recurrent core. None: yes, unless there are images or a policy of your
    own."""
    recurrent: Literal["none", "lstm", "gru"] = "none"
    """Recurrent core behind the encoder, whose state carries what was seen of the episode."""
    recurrent_size: int = 64
    """Units of the recurrent core."""
    backpropagation_length: int | None = None
    """Through how many steps gradients flow back; the recurrent state before them is as it was when acting. Divides
    the unroll length. None: the largest such number up to 32; where that is far less, the next above."""
    bounded_actions: Literal["clip", "squash"] = "clip"
    """What keeps continuous actions within their bounds: cutting them off there, or a hyperbolic tangent."""
    initial_log_std: float = 0.0
    """Logarithm of the standard deviation that continuous actions start with."""
    state_dependent_std: bool = False
    """Let the standard deviation of continuous actions depend on what is seen; SAC's always does."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """In which numbers the encoders of images multiply, when acting and learning. bfloat16: about half the time on a
    CPU that has instructions for it; weights, optimizer, heads and losses stay float32. auto: bfloat16 for images on
    such a CPU; the run's configuration says what was chosen."""
    normalize_observations: bool = False
    """Bring observations to mean 0 and deviation 1 by running statistics, which are updated at barriers."""
