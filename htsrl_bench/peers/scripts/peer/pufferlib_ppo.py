"""PufferLib: its PuffeRL on its own CartPole, which is in C."""

from __future__ import annotations

import sys
from typing import Any

from pufferlib import pufferl, vector
from pufferlib.models import Default
from pufferlib.ocean.cartpole.cartpole import Cartpole
from torch import nn

from .job import FOREVER, Job, read_command_line


def settings(job: Job, variant: str) -> dict[str, Any]:
    """`own` keeps PufferLib's optimizer, `same` takes Adam; sizes are the job's in both."""
    words, sys.argv = sys.argv, sys.argv[:1]
    config: dict[str, Any] = pufferl.load_config("puffer_cartpole")["train"]
    sys.argv = words
    config |= {
        "env": "puffer_cartpole",
        "device": "cpu",
        "use_rnn": False,
        "batch_size": job.batch_steps,
        "bptt_horizon": job.rollout_steps,
        "minibatch_size": job.minibatch_steps,
        "max_minibatch_size": job.minibatch_steps,
        "update_epochs": job.epochs,
        "total_timesteps": FOREVER,
        "checkpoint_interval": FOREVER,
        "learning_rate": job.learning_rate,
    }
    return config | ({"optimizer": "adam"} if variant == "same" else {})


def main() -> None:
    job, variant, readings = read_command_line()
    env = vector.make(
        Cartpole, env_kwargs={"num_envs": job.num_envs, "report_interval": 128}, backend=vector.Serial, num_envs=1
    )
    policy = Default(env.driver_env, hidden_size=job.hidden_sizes[0])
    if variant == "same":
        policy.encoder[1] = nn.ReLU()
    trainer = pufferl.PuffeRL(settings(job, variant), env, policy)
    while True:
        trainer.evaluate()
        trainer.train()
        readings.updated(trainer.global_step)


if __name__ == "__main__":
    main()
