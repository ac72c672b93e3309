"""Sample Factory's APPO."""

from __future__ import annotations

import sys
from typing import Any

from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

from .envs import Env, make_env
from .job import FOREVER, Job, Readings, read_command_line


class Maker:
    """Sent to the workers, which are other processes."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, *_: Any, **__: Any) -> Env:
        return make_env(self._job)


class Watch(AlgoObserver):
    """Steps that the learner is done with."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._steps = 0

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        steps = runner.env_steps.get(0, 0)
        if steps > self._steps:
            self._steps = steps
            self._readings.updated(steps)


def arguments(job: Job, variant: str) -> list[str]:
    workers = min(job.cores, job.num_envs)
    if job.is_atari:
        network = ["--encoder_conv_architecture=convnet_atari", "--encoder_conv_mlp_layers", "512"]
        network += ["--nonlinearity=relu", "--obs_scale=255.0", "--actor_critic_share_weights=True"]
    else:
        network = ["--encoder_mlp_layers", "64", "64", "--nonlinearity=tanh", "--actor_critic_share_weights=False"]
    return [
        "--algo=APPO",
        "--env=work",
        "--experiment=run",
        "--train_dir=train_dir",
        "--device=cpu",
        f"--serial_mode={variant == 'serial'}",
        f"--async_rl={variant == 'async'}",
        f"--num_workers={1 if variant == 'serial' else workers}",
        f"--num_envs_per_worker={job.num_envs if variant == 'serial' else job.num_envs // workers}",
        f"--worker_num_splits={2 if variant == 'async' else 1}",
        f"--rollout={job.rollout_steps}",
        f"--batch_size={job.minibatch_steps}",
        f"--num_batches_per_epoch={job.num_minibatches}",
        f"--num_epochs={job.epochs}",
        f"--learning_rate={job.learning_rate}",
        f"--adam_eps={job.optimizer_epsilon}",
        f"--gamma={job.discount}",
        f"--gae_lambda={job.gae_lambda}",
        f"--ppo_clip_ratio={job.clip_range}",
        f"--exploration_loss_coeff={job.entropy_coefficient}",
        f"--value_loss_coeff={job.value_coefficient}",
        f"--max_grad_norm={job.max_gradient_norm}",
        "--use_rnn=False",
        "--normalize_input=False",
        "--normalize_returns=False",
        "--adaptive_stddev=False",
        "--decorrelate_experience_max_seconds=0",
        f"--train_for_env_steps={FOREVER}",
        f"--save_every_sec={FOREVER}",
        *network,
    ]


def main() -> None:
    job, variant, readings = read_command_line()
    register_env("work", Maker(job))
    words = arguments(job, variant)
    sys.argv[1:] = words  # it reads them there once more
    parser, _ = parse_sf_args(words)
    _, runner = make_runner(parse_full_cfg(parser, words))
    runner.register_observer(Watch(readings))
    runner.init()
    runner.run()


if __name__ == "__main__":
    main()
