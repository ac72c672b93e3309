"""A second implementation of training, to hold the runtime against: one process, one loop, nothing clever.

No roles, no storages, no ring of slots: a plain `nn.Module` per version, `torch.optim`, and environments stepped side
by side. It shares with htsrl only the configuration and the seeding functions, which define the experiment. Where the
order of float operations decides over the last bit, it takes the runtime's order: actions, and values where a time
limit cuts an episode, are computed step by step in NumPy, all else that is learned from in torch, for a whole rollout.

Under `sync`, rollout j is made by theta[j] and update j starts there: this is textbook A2C and PPO. (With A2C and
several unrolls per interval, each unroll's gradient is taken at the theta[j] that made it.)
Under `hts`, rollout j is made by theta[max(j-K, 0)], K being the lag, 1 unless told otherwise, and update j turns
theta[j] into theta[j+1]:

    A2C   theta[j+1] = theta[j] - step(gradient at theta[j-K] of the loss on data of theta[j-K])
    PPO   theta[j+1] = theta[j] after epochs of minibatches on data of theta[j-K]. With lag_correction
          none            clipped around theta[j-K]
          decoupled       clipped around theta[j], weighted by how the two differ, with the values of theta[j]
          recentered      the first epoch around theta[j-K], within a wider clip; later ones around what the first
                          found at each step, weighted by how the two differ
          delayed_update  theta[j+1] = theta[j] + (theta[j-K] after epochs of minibatches - theta[j-K])
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from reference_acting import ActorCritic, Float32, Rollout, Worlds, initial_network
from torch import Tensor, nn

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Experiment
from htsrl.seeding import shuffled

FLOATS_PER_CACHE_LINE = 16


@dataclass(frozen=True)
class Reference:
    """What the reference went through."""

    thetas: list[ActorCritic]
    """Every version, from the initial one to the last."""
    first_ratios: list[Tensor]
    """Of PPO: the probability ratios in the first minibatch of every update."""


def train_reference(experiment: Experiment, gradient_at: Literal["behaviour", "current"] = "behaviour") -> Reference:
    """Train from theta[0] to the end; `gradient_at="current"` is wrong on purpose, for a negative control."""
    with one_thread():
        worlds = Worlds(experiment)
        reference = Reference([initial_network(experiment, worlds)], [])
        stepper = Stepper(experiment.algorithm, reference.thetas[0])
        for j in range(experiment.num_intervals):
            behaviour, now = reference.thetas[max(j - lag(experiment), 0)], reference.thetas[j]
            rollout = worlds.roll_out(behaviour, experiment.interval_steps)
            theta = copy.deepcopy(behaviour if is_delayed(experiment) else now)
            stepper.start_from(theta)
            stepper.set_learning_rate(learning_rate(experiment, j))
            if isinstance(experiment.algorithm, A2C):
                differentiated = behaviour if gradient_at == "behaviour" else theta
                a2c_update(experiment, experiment.algorithm, rollout, differentiated, stepper, theta)
            else:
                ratios = ppo_update(experiment, experiment.algorithm, rollout, j, stepper, theta)
                reference.first_ratios.append(ratios)
                if is_delayed(experiment):
                    apply_displacement(theta, behaviour, now)
            reference.thetas.append(theta)
        worlds.close()
        return reference


def correction(experiment: Experiment) -> str:
    named = experiment.algorithm.lag_correction
    return "none" if lag(experiment) == 0 else "recentered" if named == "auto" else named


def is_delayed(experiment: Experiment) -> bool:
    return correction(experiment) == "delayed_update"


def apply_displacement(theta: ActorCritic, start: ActorCritic, now: ActorCritic) -> None:
    """`theta` is where an update from `start` has ended, and becomes what the update makes of `now`."""
    with torch.no_grad():
        for parameter, before, newest in zip(theta.parameters(), start.parameters(), now.parameters(), strict=True):
            parameter.copy_(newest + (parameter - before))


def a2c_update(
    experiment: Experiment,
    settings: A2C,
    rollout: Rollout,
    behaviour: ActorCritic,
    stepper: Stepper,
    theta: ActorCritic,
) -> None:
    samples = Samples.of(rollout, settings, experiment.unroll_steps)
    rows_per_unroll = experiment.unroll_steps * experiment.num_envs
    for first in range(0, len(samples.returns), rows_per_unroll):
        unroll = samples.rows(torch.arange(first, first + rows_per_unroll))
        log_probs, entropies = behaviour.assess(unroll.obs, unroll.actions)
        policy_loss = -(unroll.scaled_advantages(settings) * log_probs).mean()
        value_loss = ((unroll.returns - behaviour.value(unroll.obs)) ** 2).mean()
        stepper.descend(total(settings, policy_loss, value_loss, entropies), at=behaviour, moving=theta)


def ppo_update(
    experiment: Experiment, settings: PPO, rollout: Rollout, j: int, stepper: Stepper, theta: ActorCritic
) -> Tensor:
    """Returns the ratios of the first minibatch."""
    form, is_by_batch = correction(experiment), settings.advantage_normalization == "batch"
    if form == "decoupled":
        samples = decoupled_samples(rollout, settings, experiment.unroll_steps, theta)
    else:
        samples = Samples.of(rollout, settings, experiment.unroll_steps)
    if settings.normalize_advantages and is_by_batch:
        whole = samples.advantages
        samples = replace(samples, advantages=(whole - whole.mean()) / (whole.std() + 1e-5))
    seen_log_probs, seen_values = torch.empty_like(samples.log_probs), torch.empty_like(samples.values)
    clip = settings.clip_range * (remaining(experiment, j) if settings.anneal_clip_range else 1.0)
    all_ratios: list[Tensor] = []
    for epoch in range(settings.epochs):
        if epoch == 1 and form == "recentered":
            samples = replace(samples, log_probs=seen_log_probs.clone(), values=seen_values.clone())
        width = settings.first_epoch_clip_factor if epoch == 0 and form == "recentered" else 1.0
        order = shuffled(experiment.seed, j, epoch, len(samples.returns))
        for index in np.split(order, pieces_of(settings)):
            minibatch = samples.rows(torch.from_numpy(index))
            log_probs, entropies = theta.assess(minibatch.obs, minibatch.actions)
            seen_log_probs[index], seen_values[index] = log_probs.detach(), theta.value(minibatch.obs).detach()
            log_ratio = log_probs - minibatch.log_probs
            ratio = log_ratio.exp()
            all_ratios.append(ratio.detach())
            kl, is_bounded = (ratio - 1 - log_ratio).mean(), epoch > 0 or form != "recentered"
            if settings.target_kl is not None and is_bounded and kl > 1.5 * settings.target_kl:
                return all_ratios[0]
            gains = minibatch.advantages if is_by_batch else minibatch.scaled_advantages(settings)
            surrogate = torch.min(gains * ratio, gains * ratio.clamp(1 - width * clip, 1 + width * clip))
            policy_loss = -(minibatch.weights(settings.max_importance_weight) * surrogate).mean()
            value_loss = ppo_value_loss(theta.value(minibatch.obs), minibatch, settings, width)
            stepper.descend(total(settings, policy_loss, value_loss, entropies), at=theta, moving=theta)
    return all_ratios[0]


def pieces_of(settings: PPO) -> int:
    assert settings.num_minibatches is not None
    return settings.num_minibatches


def decoupled_samples(rollout: Rollout, settings: PPO, unroll_steps: int, theta: ActorCritic) -> Samples:
    """As if `theta` had made the data, but for the probabilities with which actions were taken."""
    plain = Samples.of(rollout, settings, unroll_steps)
    pieces = [plain.rows(index) for index in torch.arange(len(plain.returns)).tensor_split(pieces_of(settings))]
    with torch.no_grad():
        log_probs = torch.cat([theta.assess(piece.obs, piece.actions)[0] for piece in pieces])
        values = torch.cat([theta.value(piece.obs) for piece in pieces])
    values_TB = values.numpy().reshape(rollout.values.shape)
    # Of what only the one that acted has seen.
    next_values_TB = (rollout.next_values + (values_TB - rollout.values)).astype(np.float32)
    for t, b in np.ndindex(values_TB.shape):
        if t + 1 < len(values_TB) and not rollout.truncated[t, b]:
            next_values_TB[t, b] = values_TB[t + 1, b]
    valued = replace(rollout, values=values_TB, next_values=next_values_TB)
    return replace(Samples.of(valued, settings, unroll_steps), log_probs=log_probs)


def ppo_value_loss(values: Tensor, minibatch: Samples, settings: PPO, width: float) -> Tensor:
    errors = (values - minibatch.returns) ** 2
    if settings.value_clip_range is None:
        return errors.mean()
    limit = settings.value_clip_range * width
    limited = minibatch.values + (values - minibatch.values).clamp(-limit, limit)
    return torch.max(errors, (limited - minibatch.returns) ** 2).mean()


def total(settings: A2C | PPO, policy_loss: Tensor, value_loss: Tensor, entropies: Tensor) -> Tensor:
    return policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropies.mean()


def lag(experiment: Experiment) -> int:
    if experiment.schedule != "hts":
        return 0
    return 1 if experiment.lag is None else experiment.lag


def remaining(experiment: Experiment, j: int) -> float:
    return 1 - j / experiment.num_intervals


def learning_rate(experiment: Experiment, j: int) -> float:
    settings: A2C | PPO = experiment.algorithm
    return settings.learning_rate * (remaining(experiment, j) if settings.anneal_learning_rate else 1.0)


class Stepper:
    """Moves networks along clipped gradients, which may have been taken at another network."""

    def __init__(self, settings: A2C | PPO, network: ActorCritic) -> None:
        self._max_norm = settings.max_gradient_norm
        self._vectors = [nn.Parameter(padded(parameter)) for parameter in network.parameters()]
        self._optimizer: torch.optim.Optimizer
        epsilon, decay = settings.optimizer_epsilon, settings.rmsprop_decay
        if settings.optimizer == "adam":
            self._optimizer = torch.optim.Adam(self._vectors, eps=epsilon, fused=True)
        else:
            self._optimizer = torch.optim.RMSprop(self._vectors, alpha=decay, eps=epsilon, foreach=False)

    def start_from(self, network: ActorCritic) -> None:
        """Of what was learned before, only the optimizer's running means stay."""
        with torch.no_grad():
            for vector, parameter in zip(self._vectors, network.parameters(), strict=True):
                vector.copy_(padded(parameter))

    def set_learning_rate(self, value: float) -> None:
        self._optimizer.param_groups[0]["lr"] = value

    def descend(self, loss: Tensor, at: ActorCritic, moving: ActorCritic) -> None:
        """One step of `moving` along the gradient of `loss`, which was computed with `at`."""
        gradients = [padded(gradient) for gradient in torch.autograd.grad(loss, list(at.parameters()))]
        norm = torch.linalg.vector_norm(torch.cat(gradients))
        scale = torch.clamp(self._max_norm / (norm + 1e-6), max=1.0)
        for vector, gradient in zip(self._vectors, gradients, strict=True):
            vector.grad = gradient * scale
        self._optimizer.step()
        with torch.no_grad():
            for parameter, vector in zip(moving.parameters(), self._vectors, strict=True):
                parameter.copy_(vector[: parameter.numel()].view_as(parameter))


def padded(x: Tensor) -> Tensor:
    """As a vector, filled up with zeros to whole cache lines, as every parameter lies in the runtime.

    Zeros change no result, but torch computes whole registers with other last bits than the few numbers left over
    (fused Adam), and adds up a sum of squares register by register.
    """
    return nn.functional.pad(x.detach().flatten(), (0, -x.numel() % FLOATS_PER_CACHE_LINE))


@dataclass(frozen=True)
class Samples:
    """A row per step."""

    obs: Tensor
    actions: Tensor
    behaviour_log_probs: Tensor
    log_probs: Tensor
    """Of the policy that a clip is around."""
    values: Tensor
    """Of the same."""
    advantages: Tensor
    returns: Tensor

    @classmethod
    def of(cls, rollout: Rollout, settings: A2C | PPO, unroll_steps: int) -> Samples:
        advantages_TB = advantages(rollout, settings.discount, settings.gae_lambda, unroll_steps)
        returns_TB = advantages_TB + rollout.values
        made = (rollout.obs, rollout.actions, rollout.log_probs, rollout.log_probs, rollout.values)
        return cls(*(torch.from_numpy(array).flatten(0, 1) for array in (*made, advantages_TB, returns_TB)))

    def rows(self, index: Tensor) -> Samples:
        made = (self.obs, self.actions, self.behaviour_log_probs, self.log_probs, self.values)
        return Samples(*(column[index] for column in (*made, self.advantages, self.returns)))

    def weights(self, maximum: float) -> Tensor:
        return torch.exp(self.log_probs - self.behaviour_log_probs).clamp(max=maximum)

    def scaled_advantages(self, settings: A2C | PPO) -> Tensor:
        x = self.advantages
        return (x - x.mean()) / (x.std() + 1e-8) if settings.normalize_advantages else x


def advantages(rollout: Rollout, discount: float, gae_lambda: float, unroll_steps: int) -> Float32:
    """Generalised advantage estimates, one environment at a time, in float32 from the last step to the first."""
    num_steps, num_envs = rollout.rewards.shape
    result = np.zeros((num_steps, num_envs), np.float32)
    for b in range(num_envs):
        following = np.float32(0)
        for t in reversed(range(num_steps)):
            ends = rollout.terminated[t, b] or rollout.truncated[t, b] or (t + 1) % unroll_steps == 0
            future = np.float32(0) if rollout.terminated[t, b] else np.float32(discount) * rollout.next_values[t, b]
            error = rollout.rewards[t, b] + future - rollout.values[t, b]
            following = error if ends else error + np.float32(discount * gae_lambda) * following
            result[t, b] = following
    return result


@contextmanager
def one_thread() -> Iterator[None]:
    """The bits of a sum depend on how many threads share it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
