"""The survey before a run on text: model, prompts and rewards are looked at in this process, before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from htsrl.algorithms.algorithm import build_algorithm
from htsrl.algorithms.gradient import num_columns as num_target_columns
from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.config import Config, Placement, available_cores
from htsrl.config.algorithm_settings import CommonSettings, algorithm_name
from htsrl.dataflow.parameters import parameter_arrays
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.versions import num_slots_for
from htsrl.envs.origins import origins_of
from htsrl.errors import ConfigError
from htsrl.language.algorithms.minibatches import check_groups
from htsrl.language.answer_tokens import AnswerTokens
from htsrl.language.batch import TextBatch
from htsrl.language.environments import Environments, check_environment
from htsrl.language.fields import ENVIRONMENT_REWARD, TextSizes, text_trajectory
from htsrl.language.model_folder import file_hash, folder_hash, load_tokenizer, read_model_config
from htsrl.language.plan import MAX_ROWS, TextPlan
from htsrl.language.probe import probe
from htsrl.language.prompts import Prompt, read_prompts
from htsrl.language.reward_models import build_rewards
from htsrl.language.rewards import Texts, check_rewards, reward_names
from htsrl.language.task import RLHF, TextTask
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.numerics import OwnNumerics
from htsrl.placements.blueprint import Blueprint, share_out
from htsrl.schedules.make import make_schedule
from htsrl.spaces import Interface

MIN_WIDTH = 4


def draw_text_blueprint(config: Config) -> Blueprint:
    """Look at one model, the prompts and the rewards, in this process, to learn all that the workers need to know."""
    experiment, placement, schedule = config.experiment, config.placement, make_schedule(config.experiment)
    if experiment.env != RLHF:
        raise ConfigError(f"env={experiment.env!r} is not known; runs on text have {RLHF!r}")
    if schedule.mixes_versions:
        raise ConfigError(f"schedule={experiment.schedule} mixes versions in a text; use hts (lag 1), --lag K or sync")
    if experiment.network.precision == "bfloat16":
        raise ConfigError("precision=bfloat16 is for networks that see images, not for texts; use float32")
    if experiment.num_replicas > 1 or experiment.source is not None:
        raise ConfigError("a run on text has one learner, and makes its texts itself; leave out learners and source")
    task, algorithm = TextTask.of(experiment.env_args), _text_algorithm(config)
    check_identity(task)
    settings = experiment.algorithm
    check_groups(task.num_generations, settings, experiment.num_envs, algorithm.least_generations)
    prompts, sizes, vocabulary = _look_at_texts(task, experiment.num_envs)
    rewards = build_rewards(task)
    check_rewards(rewards, _example_texts(prompts, task.num_generations))
    environment = _look_at_environment(task, prompts)
    plan = TextPlan(
        task,
        sizes,
        experiment.seed,
        schedule.num_rollouts(0, experiment.num_intervals),
        has_reference=bool(algorithm.needs_reference),
        has_values=bool(algorithm.has_values),
        by_block=bool(task.recompute_log_probs),
        verifies=placement.verify_storages,
        run_dir=placement.run_dir,
    )
    with OwnNumerics():
        policy = plan.build_policy()
        if task.recompute_log_probs is None:
            plan = _probed(plan, policy, prompts, placement)
    num_slots, blocks = num_slots_for(schedule.max_lag), sizes.blocks()
    shares = share_out(len(blocks), _num_generators(config, len(blocks)))
    shards = experiment.gradient_shards
    return Blueprint(
        config=config,
        interface=Interface(spaces.Box(0, vocabulary - 1, (sizes.width,), np.int64), spaces.Discrete(vocabulary)),
        trajectory=text_trajectory(
            sizes,
            schedule.num_storages,
            plan.has_reference,
            plan.has_values,
            recomputes=plan.by_block,
            rewards=[*reward_names(task.reward_funcs), *([ENVIRONMENT_REWARD] if task.environment else [])],
            has_episodes=task.has_episodes,
        ),
        parameter_specs=tuple(parameter_arrays(policy, NUM_VECTORS[CommonSettings.of(settings).optimizer], num_slots)),
        model_specs=(),
        shape=ReferenceShape((sizes.num_columns,)),
        executor_envs=tuple(tuple(column for block in share for column in blocks[block]) for share in shares),
        actor_envs=(),
        learner_shards=share_out(shards, placement.resolved_learner_workers(shards)),
        num_targets=num_target_columns(algorithm.Targets),
        origins=origins_of(
            "transformers",
            "tokenizers",
            *(reward.origin for reward in rewards),
            *environment,
            *_own_parts(algorithm, schedule),
        ),
        collector=plan,
    )


def _text_algorithm(config: Config) -> Any:
    algorithm: Any = build_algorithm(config.experiment)
    if getattr(algorithm, "Batch", None) is not TextBatch:
        name = algorithm_name(config.experiment.algorithm)
        raise ConfigError(f"algorithm {name} does not learn from texts; use rloo, online_dpo, grpo, ppo or best_of_k")
    return algorithm


def _own_parts(*parts: object) -> list[object]:
    """Those that are the user's code: changed, it is another run."""
    return [part for part in parts if not type(part).__module__.startswith("htsrl.")]


def identity_of(task: TextTask) -> dict[str, str]:
    """What the run begins with, by hash: changed, it is another run."""
    found = {"model": folder_hash(Path(task.model)), "prompts": file_hash(Path(task.prompts))}
    if task.ref_model is not None:
        found["ref_model"] = folder_hash(Path(task.ref_model))
    return found


def check_identity(task: TextTask) -> None:
    """ConfigError where the model or the prompts are not there, or others than the run began with."""
    read_model_config(task.model)
    if task.ref_model is not None:
        read_model_config(task.ref_model, "ref_model")
    if not Path(task.prompts).is_file():
        raise ConfigError(f"prompts={task.prompts} is no file; give one of JSON lines, each with a prompt")
    if task.eval_prompts is not None and not Path(task.eval_prompts).is_file():
        raise ConfigError(f"eval_prompts={task.eval_prompts} is no file; give one like that of the prompts")
    if task.identity and (now := identity_of(task)) != dict(task.identity):
        changed = [name for name in now if now[name] != task.identity.get(name)]
        raise ConfigError(
            f"{', '.join(f'{name}={getattr(task, name)}' for name in changed)} changed since the run began; put back "
            "what was there, or begin another run"
        )


def _look_at_texts(task: TextTask, num_columns: int) -> tuple[list[Prompt], TextSizes, int]:
    config, tokenizer = read_model_config(task.model).get_text_config(), load_tokenizer(task.model)
    prompts = read_prompts(task.prompts, tokenizer, task.max_prompt_length)
    longest = max(len(prompt.tokens) for prompt in prompts)
    width = longest + task.max_completion_length
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and width > context:
        raise ConfigError(
            f"a prompt of {longest} tokens and max_completion_length={task.max_completion_length} are {width} tokens, "
            f"over the model's context of {context}; shorten prompts or completions"
        )
    if max(max(prompt.tokens) for prompt in prompts) >= config.vocab_size:
        raise ConfigError(
            f"the tokenizer in {task.model} makes tokens beyond the model's vocabulary of {config.vocab_size}; it "
            "belongs to another model"
        )
    return (
        prompts,
        TextSizes(num_columns, task.num_generations, max(width, MIN_WIDTH), task.max_completion_length),
        (config.vocab_size),
    )


def _look_at_environment(task: TextTask, prompts: list[Prompt]) -> list[object]:
    """Give the first episode a turn; returns where the environment's code comes from."""
    if task.environment is None:
        return []
    environments = Environments(task.environment, task.environment_seconds, task.environment_attempts)
    try:
        check_environment(environments, prompts[0].columns, prompts[0].text)
    finally:
        environments.close()
    AnswerTokens(load_tokenizer(task.model))(prompts[0], (), prompts[0].text)  # a chat template may refuse
    return [environments.kind]


def _example_texts(prompts: list[Prompt], count: int) -> Texts:
    first = [prompts[0]] * count
    texts = [prompt.text for prompt in first]
    return Texts([prompt.columns["prompt"] for prompt in first], texts, texts, [prompt.columns for prompt in first])


def _probed(plan: TextPlan, policy: Any, prompts: list[Prompt], placement: Placement) -> TextPlan:
    """With the padding that bits need, or block by block where none is enough."""
    rows, is_told = min(MAX_ROWS, plan.sizes.num_columns), placement.progress != "off"
    finding = probe(policy, prompts, plan.sampling, placement.device, rows, is_timed=is_told)
    if finding.padding is None:
        warn_on_stderr(f"chosen    --recompute-log-probs True: {finding}")
    elif is_told:
        warn_on_stderr(f"probed    {finding}")
    return replace(plan, by_block=finding.padding is None, padding=finding.padding)


def _num_generators(config: Config, num_blocks: int) -> int:
    """One per core, less one where the learner works at the same time."""
    asked = config.placement.num_executors
    if asked is not None and asked > num_blocks:
        raise ConfigError(
            f"num_generators={asked} is more than the {num_blocks} blocks of completions that a rollout can be cut "
            f"into; use {num_blocks} or fewer, or a larger generation_batch_size"
        )
    return asked or min(num_blocks, max(available_cores() - config.experiment.overlaps_learning, 1))
