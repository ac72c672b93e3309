"""A second implementation of training, to hold the runtime against: one process, one loop, nothing clever.

No roles, no storages, no ring of slots: a plain `nn.Module` per version, `torch.optim`, and environments stepped side
by side. It shares with htsrl only the configuration and the seeding functions, which define the experiment. Where the
order of float operations decides over the last bit, it takes the runtime's order: actions, and values where a time
limit cuts an episode, are computed step by step in NumPy, all else that is learned from in torch, for a whole rollout.

Under `sync`, rollout j is made by theta[j] and update j starts there: this is textbook A2C and PPO. (With A2C and
several unrolls per interval, each unroll's gradient is taken at the theta[j] that made it.)
Under `hts`, rollout j is made by theta[max(j-1, 0)], and update j turns theta[j] into theta[j+1]:

    A2C   theta[j+1] = theta[j] - step(gradient at theta[j-1] of the loss on data of theta[j-1])
    PPO   theta[j+1] = theta[j] after epochs of minibatches, ratios against the log-probabilities of theta[j] on data of
          theta[j-1], advantages by the values of theta[j], and every step weighted by the ratio of the two
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from htsrl.config import A2C, PPO, Experiment
from htsrl.seeding import ActionNoise, network_seed, reset_seed, shuffled

Float32 = NDArray[np.float32]
Bools = NDArray[np.bool_]
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
            behaviour = reference.thetas[max(j - 1, 0) if experiment.schedule == "hts" else j]
            rollout = worlds.roll_out(behaviour, experiment.interval_steps)
            theta = copy.deepcopy(reference.thetas[j])
            stepper.set_learning_rate(learning_rate(experiment, j))
            if isinstance(experiment.algorithm, A2C):
                differentiated = behaviour if gradient_at == "behaviour" else theta
                a2c_update(experiment, experiment.algorithm, rollout, differentiated, stepper, theta)
            else:
                ratios = ppo_update(experiment, experiment.algorithm, rollout, j, stepper, theta)
                reference.first_ratios.append(ratios)
            reference.thetas.append(theta)
        worlds.close()
        return reference


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
    samples = Samples.of(rollout, settings, experiment.unroll_steps)
    seen_log_probs, seen_values = torch.empty_like(samples.log_probs), torch.empty_like(samples.values)
    clip = settings.clip_range * (remaining(experiment, j) if settings.anneal_clip_range else 1.0)
    all_ratios: list[Tensor] = []
    is_decoupled = experiment.schedule == "hts" and settings.lag_correction != "none"
    for epoch in range(settings.epochs):
        if epoch == 1 and is_decoupled:
            samples = replace(samples, log_probs=seen_log_probs.clone(), values=seen_values.clone())
        width = 2 if epoch == 0 and is_decoupled else 1
        order = shuffled(experiment.seed, j, epoch, len(samples.returns))
        for index in np.split(order, settings.num_minibatches):
            minibatch = samples.rows(torch.from_numpy(index))
            log_probs, entropies = theta.assess(minibatch.obs, minibatch.actions)
            seen_log_probs[index], seen_values[index] = log_probs.detach(), theta.value(minibatch.obs).detach()
            log_ratio = log_probs - minibatch.log_probs
            ratio = log_ratio.exp()
            all_ratios.append(ratio.detach())
            kl, is_bounded = (ratio - 1 - log_ratio).mean(), epoch > 0 or not is_decoupled
            if settings.target_kl is not None and is_bounded and kl > 1.5 * settings.target_kl:
                return all_ratios[0]
            gains = minibatch.scaled_advantages(settings)
            surrogate = torch.min(gains * ratio, gains * ratio.clamp(1 - width * clip, 1 + width * clip))
            policy_loss = -(minibatch.weights() * surrogate).mean()
            value_loss = ppo_value_loss(theta.value(minibatch.obs), minibatch, settings, width)
            stepper.descend(total(settings, policy_loss, value_loss, entropies), at=theta, moving=theta)
    return all_ratios[0]


def ppo_value_loss(values: Tensor, minibatch: Samples, settings: PPO, width: int) -> Tensor:
    errors = (values - minibatch.returns) ** 2
    if settings.value_clip_range is None:
        return errors.mean()
    limit = settings.value_clip_range * width
    limited = minibatch.values + (values - minibatch.values).clamp(-limit, limit)
    return torch.max(errors, (limited - minibatch.returns) ** 2).mean()


def total(settings: A2C | PPO, policy_loss: Tensor, value_loss: Tensor, entropies: Tensor) -> Tensor:
    return policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropies.mean()


def remaining(experiment: Experiment, j: int) -> float:
    return 1 - j / experiment.num_intervals


def learning_rate(experiment: Experiment, j: int) -> float:
    settings = experiment.algorithm
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

    def weights(self) -> Tensor:
        return torch.exp(self.log_probs - self.behaviour_log_probs).clamp(max=2)

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


@dataclass(frozen=True)
class Rollout:
    """An interval `[T, B, ...]` of all environments, made by one version."""

    obs: Float32
    actions: NDArray[Any]
    log_probs: Float32
    values: Float32
    next_values: Float32
    """Of the observation that truly followed, before any reset; anything where there is no future."""
    rewards: Float32
    terminated: Bools
    truncated: Bools


class Worlds:
    """The environments, from one interval to the next."""

    def __init__(self, experiment: Experiment) -> None:
        env_id, num_envs = experiment.env, experiment.num_envs
        assert isinstance(env_id, str)
        self._envs = [gymnasium.make(env_id, **experiment.env_args) for _ in range(num_envs)]
        self._seed = experiment.seed
        self._episodes = [0] * num_envs
        self._obs = np.stack([self._reset(b) for b in range(num_envs)])
        self._step = 0
        self.num_inputs = self._obs[0].size
        self._actions = actions = self._envs[0].action_space
        self.is_discrete = isinstance(actions, spaces.Discrete)
        self.num_outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else math.prod(actions.shape or ())
        self._noise = ActionNoise(gumbel=self.num_outputs) if self.is_discrete else ActionNoise(normal=self.num_outputs)

    @torch.no_grad()
    def roll_out(self, network: ActorCritic, num_steps: int) -> Rollout:
        steps: list[tuple[NDArray[Any], ...]] = []
        for _ in range(num_steps):
            acted = network.act(self._obs, self._noise_of_this_step())
            following, rewards, terminated, truncated = self._take(acted)
            steps.append((self._obs, acted, network.final_value(following), rewards, terminated, truncated))
            ended = terminated | truncated
            self._obs = np.stack([self._reset(b) if ended[b] else following[b] for b in range(len(ended))])
        obs, actions, final_values, rewards, terminated, truncated = (np.stack(x) for x in zip(*steps, strict=True))
        rows = torch.from_numpy(obs).flatten(0, 1)
        log_probs, _ = network.assess(rows, torch.from_numpy(actions).flatten(0, 1))
        values = network.value(rows).numpy().reshape(rewards.shape)
        last_values = network.value(torch.from_numpy(self._obs)).numpy()
        next_values = np.where(truncated, final_values, np.concatenate([values[1:], last_values[None]]))
        log_probs_TB = log_probs.numpy().reshape(rewards.shape)
        return Rollout(obs, actions, log_probs_TB, values, next_values, rewards, terminated, truncated)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _noise_of_this_step(self) -> Float32:
        rows = [self._noise.draw(self._seed, b, self._step, 1) for b in range(len(self._envs))]
        self._step += 1
        return np.concatenate(rows)

    def _take(self, actions: NDArray[Any]) -> tuple[Float32, Float32, Bools, Bools]:
        if isinstance(self._actions, spaces.Box):
            actions = np.clip(actions, self._actions.low, self._actions.high)
        results = [env.step(action) for env, action in zip(self._envs, actions, strict=True)]
        obs, rewards, terminated, truncated, _ = zip(*results, strict=True)
        return np.stack(obs), np.array(rewards, np.float32), np.array(terminated), np.array(truncated)

    def _reset(self, b: int) -> Float32:
        obs, _ = self._envs[b].reset(seed=reset_seed(self._seed, b, self._episodes[b]))
        self._episodes[b] += 1
        return np.asarray(obs, np.float32)


class ActorCritic(nn.Module):
    """Two towers of tanh layers; a softmax over actions, or normal distributions with a free deviation."""

    def __init__(self, num_inputs: int, num_outputs: int, is_discrete: bool, hidden: Sequence[int]) -> None:
        super().__init__()
        self._is_discrete = is_discrete
        if not is_discrete:
            self.log_std = nn.Parameter(torch.zeros(num_outputs))
        widths = [num_inputs, *hidden]
        self.actor, self.critic = tower(widths), tower(widths)
        self.actor_head = layer(widths[-1], num_outputs, gain=0.01)
        self.critic_head = layer(widths[-1], 1, gain=1.0)

    def value(self, obs: Tensor) -> Tensor:
        value: Tensor = self.critic_head(self.critic(obs))
        return value[:, 0]

    def act(self, obs: Float32, noise: Float32) -> NDArray[Any]:
        outputs = in_numpy(nn.Sequential(*self.actor, self.actor_head), obs)
        if self._is_discrete:
            return np.asarray((outputs + noise).argmax(1))
        return np.asarray(outputs + np.exp(self.log_std.numpy()) * noise)

    def final_value(self, obs: Float32) -> Float32:
        return in_numpy(nn.Sequential(*self.critic, self.critic_head), obs)[:, 0]

    def assess(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the probabilities of given actions, and entropies."""
        outputs = self.actor_head(self.actor(obs))
        if self._is_discrete:
            log_probs = torch.log_softmax(outputs, 1)
            return log_probs.gather(1, actions[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(1)
        z = (actions - outputs) * torch.exp(-self.log_std)
        log_prob = (-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(1)
        return log_prob, (self.log_std + 0.5 + 0.5 * math.log(2 * math.pi)).sum().expand(len(outputs))


def in_numpy(layers: nn.Sequential, x: Float32) -> Float32:
    for module in layers:
        x = x.dot(module.weight.numpy().T) + module.bias.numpy() if isinstance(module, nn.Linear) else np.tanh(x)
    return x


def initial_network(experiment: Experiment, worlds: Worlds) -> ActorCritic:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(network_seed(experiment.seed))
        return ActorCritic(worlds.num_inputs, worlds.num_outputs, worlds.is_discrete, experiment.network.hidden_sizes)


def tower(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [layer(before, after, gain=math.sqrt(2)), nn.Tanh()]
    return nn.Sequential(*layers)


def layer(num_inputs: int, num_outputs: int, gain: float) -> nn.Linear:
    linear = nn.Linear(num_inputs, num_outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


@contextmanager
def one_thread() -> Iterator[None]:
    """The bits of a sum depend on how many threads share it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
