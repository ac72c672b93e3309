"""`htsrl rlhf`: train a language model with rewards."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from htsrl.cli.folder import ConsoleFlags, ObserverFlags, find_modules_here
from htsrl.config import Placement
from htsrl.errors import ConfigError
from htsrl.metrics.result import RunResult

Repeatable = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class LossFlags:
    """Settings of the algorithm; those left out have its defaults, and not every algorithm has all of them."""

    learning_rate: float | None = None
    """Step size of Adam."""
    lr_scheduler_type: Literal["constant", "linear"] | None = None
    """linear: the step size falls to 0 over the run."""
    beta: float | None = None
    """How strongly the policy is kept to the reference model."""
    epsilon: float | None = None
    """rloo, grpo: clip range of probability ratios."""
    importance_sampling_cap: float | None = None
    """In place of clipping, weights of old data are cut off here."""
    loss_type: str | None = None
    """online_dpo: sigmoid or ipo. grpo: grpo or dr_grpo."""
    steps_per_generation: int | None = None
    """N: minibatches that a rollout is cut into, each an optimizer step."""
    num_iterations: int | None = None
    """T: how often a rollout is gone through."""
    max_grad_norm: float | None = None
    """Gradients longer than this are scaled down to it."""
    scale_rewards: bool | None = None
    """grpo: divide advantages by the standard deviation of the prompt's scores."""
    gamma: float | None = None
    """ppo: what a reward one token later is worth."""
    lam: float | None = None
    """ppo: lambda of generalised advantage estimates."""
    cliprange: float | None = None
    """ppo: clip range of probability ratios."""
    cliprange_value: float | None = None
    """ppo: how far a value may move in one update before it stops to count."""
    vf_coef: float | None = None
    """ppo: weight of the value loss."""

    def given(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class TextPlacementFlags:
    """Who works where, and what is shown of it; none of it changes the result."""

    placement: Literal["inline", "processes"] = "processes"
    """inline: everything in this process. processes: generators and learner in their own."""
    num_generators: int | None = None
    """Processes that generate. None: one per core, less one where the learner works at the same time."""
    learner_workers: int | None = None
    """Processes that take gradients, the learner among them. None: one per core, up to gradient_shards."""
    device: str = "cpu"
    """Where the models run: cpu, cuda, cuda:1 ..."""
    run_dir: Path | None = None
    """Folder for this run's results. None: a new one under runs/."""
    checkpoint_every_seconds: float | None = 300.0
    """Write a checkpoint about this often. None: not by time."""
    checkpoint_every_updates: int | None = None
    """Also write one before every so many updates."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept."""
    deadline_seconds: float = 300.0
    """A worker that gets nowhere for so long is killed and started again."""
    log_every_updates: int = 1
    """Metrics are written about this often."""
    tensorboard: bool = True
    """Also write the metrics for TensorBoard."""
    progress: Literal["auto", "live", "plain", "verbose", "off"] = "auto"
    """Progress on the terminal."""
    verify_storages: bool = False
    """For tests: check that the log-probabilities of generators are the learner's, to the bit."""

    def plain(self, generation_batch_size: int) -> Placement:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        backend, generators, updates = (
            values.pop(name) for name in ("placement", "num_generators", "log_every_updates")
        )
        steps = updates * generation_batch_size
        return Placement(backend=backend, num_executors=generators, log_every_steps=steps, **values)


@dataclass(frozen=True)
class Rlhf:
    """Train a language model so that the rewards of its completions rise; writes a folder of results."""

    model: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder of a decoder-only Hugging Face model: config.json, safetensors and its tokenizer."""
    prompts: Annotated[Path, tyro.conf.arg(metavar="FILE.jsonl")]
    """JSON lines, each with `prompt` as text or as messages; all other columns are handed to the rewards."""
    reward: Annotated[Repeatable, tyro.conf.arg(metavar="MODULE:FUNCTION")] = ()
    """A reward function, or the folder of a reward model; may be given several times."""
    reward_weights: tuple[float, ...] | None = None
    """One for each reward. None: 1."""
    algo: Annotated[str, tyro.conf.arg(metavar="{rloo,online_dpo,grpo,ppo,best_of_k,MODULE:CLASS}")] = "rloo"
    """Algorithm."""
    eval_prompts: Annotated[Path | None, tyro.conf.arg(metavar="FILE.jsonl")] = None
    """Held-out prompts for `htsrl eval`; a column `reference` is what completions are compared with."""
    ref_model: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """The frozen reference model. None: the model as the run begins with it."""
    total_episodes: int = 10_000
    """Completions in all, rounded up to whole rollouts."""
    generation_batch_size: int = 64
    """Completions of a rollout, which one update learns from."""
    num_generations: int = 2
    """K: completions of each prompt."""
    max_prompt_length: int | None = None
    """Tokens that a prompt may have; longer ones are an error. None: as many as the longest has."""
    max_completion_length: int = 64
    """Tokens after which a completion is cut off."""
    temperature: float = 1.0
    """Of the distribution that tokens are drawn from, and that the loss is about."""
    top_p: float = 1.0
    """Only 1 can be had: the loss is about the distribution that tokens are drawn from."""
    lora_r: int | None = None
    """Rank of adapters (LoRA) that are trained in place of all weights."""
    lora_alpha: int = 16
    """How much adapters count: their output is scaled by lora_alpha / lora_r."""
    lora_target_modules: tuple[str, ...] | None = None
    """Names of the layers that get an adapter. None: all linear layers but the last."""
    missing_eos_penalty: float | None = None
    """Taken off the score of completions that were cut off."""
    reward_seconds: float = 60.0
    """Time for one call of a reward function."""
    reward_attempts: int = 2
    """How often a reward function is asked before its completions are left out of the loss, and counted."""
    environment: Annotated[str | None, tyro.conf.arg(metavar="MODULE:CLASS")] = None
    """What answers every turn of the model, and rewards it. None: a completion is one turn."""
    environment_seconds: float = 60.0
    """Time for one step of the environment."""
    environment_attempts: int = 2
    """How often a step is tried before its episode is left out of the loss, and counted."""
    max_turns: int = 8
    """Turns after which an episode is cut off."""
    max_turn_length: int | None = None
    """Tokens after which a turn is cut off, and answered. None: max_completion_length, of all turns and answers."""
    turns_per_rollout: int | None = None
    """Turns of an episode in one rollout; it continues in the next, with the next version. None: no limit."""
    tokens_per_rollout: int | None = None
    """Tokens that are drawn for a completion in one rollout; it continues in the next. None: no limit."""
    recompute_log_probs: bool | None = None
    """Let the learner compute log-probabilities of drawn tokens again. None: where generators would have others."""
    schedule: Literal["hts", "sync"] = "hts"
    """hts: generate while learning, `lag` versions behind. sync: in turn, lag 0."""
    lag: int | None = None
    """Under hts: how many versions completions are behind what learns from them, exactly. None: 1."""
    gradient_shards: int = 1
    """Parts that every gradient is taken in: less memory, and so many processes can share the work."""
    seed: int = 1
    """Every random number of the run is a function of it."""
    resume_or_start: bool = False
    """For jobs that may be killed and begun again: start, or resume what is in --run-dir."""
    loss: LossFlags = field(default_factory=LossFlags)
    observers: ObserverFlags = field(default_factory=ObserverFlags)
    console: ConsoleFlags = field(default_factory=ConsoleFlags)
    where: TextPlacementFlags = field(default_factory=TextPlacementFlags)

    def run(self) -> int:
        from htsrl.language.rlhf import rlhf_config, rlhf_or_resume
        from htsrl.train import train_watched

        if self.top_p != 1.0:
            raise ConfigError(
                f"top_p={self.top_p} cuts off part of the distribution that the loss is about, and ratios of "
                "probabilities would be wrong; leave it out, and lower temperature instead"
            )
        find_modules_here()  # rewards are named by the user
        names = {f.name for f in dataclasses.fields(self)} - NOT_SETTINGS
        settings = {name: getattr(self, name) for name in names} | self.loss.given()
        settings |= {name: None if (path := getattr(self, name)) is None else str(path) for name in PATHS}
        placement = self.console.applied(self.where.plain(self.generation_batch_size))
        config = rlhf_config(self.model, self.prompts, self.reward, self.algo, placement, **settings)
        watching = self.observers.watching()
        result = rlhf_or_resume(config, watching) if self.resume_or_start else train_watched(config, watching)
        print_text_result(result)
        return 0


NOT_SETTINGS = frozenset(
    {"model", "prompts", "reward", "algo", "top_p", "resume_or_start", "loss", "observers", "console", "where"}
)
"""Of the command's fields, those that are not settings of the task or the experiment by the same name."""
PATHS = ("ref_model", "eval_prompts")


def print_text_result(result: RunResult) -> None:
    score = "no completion was scored" if result.mean_return is None else f"{result.mean_return:.4g}"
    print(f"reward    {score} (mean of the last 100 completions)")
    print(f"episodes  {result.steps:,} completions in {result.seconds:.1f} s, {result.steps_per_second:,.1f} a second")
    print(f"digest    {result.digest}")
    print(f"model     {result.run_dir / 'model'}")
    print(f"run       {result.run_dir}")
