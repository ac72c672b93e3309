"""TorchRL: its collector, advantage estimate and losses, in the loop of its own examples."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import DoubleToFloat, GymWrapper, ParallelEnv, SerialEnv, TransformedEnv
from torchrl.modules import ActorValueOperator, ProbabilisticActor, ValueOperator
from torchrl.objectives import A2CLoss, ClipPPOLoss
from torchrl.objectives.value import GAE

from .envs import make_env
from .job import Job, read_command_line
from .networks import mlp, nature_cnn, orthogonal


def torchrl_env(job: Job) -> Any:
    env = GymWrapper(make_env(job), categorical_action_encoding=True)
    return env if job.is_atari else TransformedEnv(env, DoubleToFloat())


def vector_env(job: Job, variant: str) -> Any:
    kind = SerialEnv if variant == "serial" else ParallelEnv
    return kind(job.num_envs, partial(torchrl_env, job))


def operator(job: Job) -> Any:
    """Policy and value, on shared features for images."""
    env = make_env(job)
    actions, seen = env.action_space, env.observation_space.shape
    assert seen is not None
    env.close()
    is_discrete = isinstance(actions, gymnasium.spaces.Discrete)
    num_outputs = (
        int(actions.n) if isinstance(actions, gymnasium.spaces.Discrete) else int(np.prod(actions.shape or ()))
    )
    features: nn.Module = AnyBatch(nature_cnn()) if job.is_atari else nn.Identity()
    actor = orthogonal(nn.Linear(512, num_outputs), 0.01) if job.is_atari else mlp(seen[0], num_outputs, 0.01)
    critic = orthogonal(nn.Linear(512, 1), 1.0) if job.is_atari else mlp(seen[0], 1, 1.0)
    if is_discrete:
        head = TensorDictModule(actor, in_keys=["features"], out_keys=["logits"])
        policy = ProbabilisticActor(
            head, in_keys=["logits"], distribution_class=torch.distributions.Categorical, return_log_prob=True
        )
    else:
        both = nn.Sequential(actor, WithDeviation(num_outputs), NormalParamExtractor(scale_mapping="exp"))
        head = TensorDictModule(both, in_keys=["features"], out_keys=["loc", "scale"])
        policy = ProbabilisticActor(
            head, in_keys=["loc", "scale"], distribution_class=Independent, return_log_prob=True
        )
    common = TensorDictModule(features, in_keys=["observation"], out_keys=["features"])
    return ActorValueOperator(common, policy, ValueOperator(critic, in_keys=["features"]))


class AnyBatch(nn.Module):
    """The advantage estimate asks for the values of a whole rollout, [B, T, 4, 84, 84]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.network(images.reshape(-1, *images.shape[-3:]))
        return features.reshape(*images.shape[:-3], -1)


class WithDeviation(nn.Module):
    """Appends a logarithm of the deviation that is learned and does not depend on the observation."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(num_outputs))

    def forward(self, mean: torch.Tensor) -> torch.Tensor:
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


class Independent(torch.distributions.Independent):
    def __init__(self, loc: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__(torch.distributions.Normal(loc, scale, validate_args=False), 1, validate_args=False)

    @property
    def deterministic_sample(self) -> torch.Tensor:
        return self.mean


def loss_of(job: Job, policy: Any, value: Any) -> Any:
    shared = {"entropy_coeff": job.entropy_coefficient, "critic_coeff": job.value_coefficient, "loss_critic_type": "l2"}
    if job.algorithm == "a2c":
        return A2CLoss(policy, value, **shared)
    return ClipPPOLoss(
        policy, value, clip_epsilon=job.clip_range, normalize_advantage=job.normalize_advantages, **shared
    )


def main() -> None:
    job, variant, readings = read_command_line()
    torch.manual_seed(1)
    both = operator(job)
    policy, value = both.get_policy_operator(), both.get_value_operator()
    advantage = GAE(gamma=job.discount, lmbda=job.gae_lambda, value_network=value, average_gae=False)
    loss = loss_of(job, policy, value)
    if job.algorithm == "a2c":
        optimizer: torch.optim.Optimizer = torch.optim.RMSprop(
            loss.parameters(), job.learning_rate, alpha=0.99, eps=job.optimizer_epsilon
        )
    else:
        optimizer = torch.optim.Adam(loss.parameters(), job.learning_rate, eps=job.optimizer_epsilon)
    collector = Collector(
        vector_env(job, variant), policy, frames_per_batch=job.batch_steps, total_frames=-1, device="cpu"
    )
    steps = 0
    for batch in collector:
        with torch.no_grad():
            advantage(batch)
        data = batch.reshape(-1)
        for _ in range(job.epochs):
            for piece in torch.randperm(job.batch_steps).reshape(job.num_minibatches, -1):
                losses = loss(data[piece])
                total = losses["loss_objective"] + losses["loss_critic"] + losses.get("loss_entropy", 0.0)
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), job.max_gradient_norm)
                optimizer.step()
        collector.update_policy_weights_()
        steps += job.batch_steps
        readings.updated(steps)


if __name__ == "__main__":
    main()
