"""A run on text, ready to be built: what every process of it needs to know, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htsrl.language.adapters import with_adapters
from htsrl.language.fields import TextSizes
from htsrl.language.model_folder import import_transformers, load_causal_model, load_tokenizer, save_folder
from htsrl.language.prompts import Prompt, PromptOrder, read_prompts
from htsrl.language.samples import SAMPLES_FILE, SampleWriter
from htsrl.language.task import TextTask
from htsrl.placements.collector import CollectorSite
from htsrl.roles.shared import Shared

if TYPE_CHECKING:
    from torch import nn

    from htsrl.dataflow.parameters import ParameterRing
    from htsrl.language.attention import Padding
    from htsrl.language.finisher import TextFinisher
    from htsrl.language.generation import Sampling
    from htsrl.language.generator import Generator
    from htsrl.language.play import Game
    from htsrl.language.policy import TextPolicy

MODEL_FOLDER = "model"
"""Where in the run's folder the result is."""
MAX_ROWS = 128
"""Texts that a generator has under way at a time."""


@dataclass(frozen=True)
class TextPlan:
    """Who fills the storages of a run on text."""

    task: TextTask
    sizes: TextSizes
    seed: int
    num_rollouts: int
    has_reference: bool
    has_values: bool
    by_block: bool
    """Whether texts are generated block by block, and log-probabilities computed again by the learner: where the bits
    of a text depend on its company."""
    padding: Padding | None = None
    """That the probe has found; None: the least, for nothing depends on it."""
    verifies: bool = False
    run_dir: Path | None = None
    """Where samples are written, if anywhere."""
    name: str = "generator"
    libraries: tuple[str, ...] = ("transformers.models.auto.modeling_auto", "htsrl.language.survey")

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self.task.model)

    @cached_property
    def prompts(self) -> list[Prompt]:
        return read_prompts(self.task.prompts, self.tokenizer, self.task.max_prompt_length)

    @property
    def order(self) -> PromptOrder:
        sizes = self.sizes
        return PromptOrder(
            self.seed, len(self.prompts), sizes.num_columns // sizes.num_generations, sizes.num_generations
        )

    @property
    def sampling(self) -> Sampling:
        from htsrl.language.generation import Sampling

        return Sampling(self.seed, self.sizes.max_completion, end_tokens(self.task.model, self.tokenizer))

    def build_policy(self) -> TextPolicy:
        return self._policy_of(with_adapters(load_causal_model(self.task.model), self.task, self.seed))

    def build_reference(self) -> TextPolicy:
        return self._policy_of(load_causal_model(self.task.ref_model or self.task.model, "ref_model"), frozen=True)

    def _policy_of(self, model: nn.Module, frozen: bool = False) -> TextPolicy:
        from htsrl.language.policy import TextPolicy, new_value_head

        head = new_value_head(model) if self.has_values and not frozen else None
        policy = TextPolicy(model, self.sizes.width, self.task.temperature, head)
        if self.padding is not None:
            policy.pad_by(self.padding)
        return policy

    def build_collector(self, columns: Sequence[int], site: CollectorSite) -> Generator:
        from htsrl.language.episode_work import EpisodeWork
        from htsrl.language.generator import CompletionWork, Generator, RolloutWork, Writing
        from htsrl.language.reward_models import build_rewards
        from htsrl.language.rewards import Rewards, reward_names
        from htsrl.language.scoring import Scoring

        task = self.task
        writing = Writing(self.prompts, self.order, self.sampling, self._decode, MAX_ROWS, self.by_block)
        rewards = Rewards(build_rewards(task))
        scoring = Scoring(rewards, reward_names(task.reward_funcs), task.weights, task.missing_eos_penalty)
        work: RolloutWork = CompletionWork(self.sizes, site, writing, scoring)
        if task.has_episodes:
            game = new_game(task, self.tokenizer, lambda ordinal: self.prompts[self.order.prompt(ordinal)])
            work = EpisodeWork(self.sizes, site, writing, scoring, game)
        return Generator(columns, site, work, self.num_rollouts)

    def build_finisher(self, shared: Shared, parameters: ParameterRing) -> TextFinisher:
        from htsrl.language.finisher import Checks, TextFinisher

        reference = self.build_reference().to(parameters.slots.device) if self.has_reference else None
        samples = SampleWriter(self.run_dir / SAMPLES_FILE, self._decode) if self.run_dir else None
        checks = Checks(self.verifies, self.task.limits.max_rollouts)
        return TextFinisher(shared, parameters, self.sizes, reference, samples, checks)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def import_ahead(self) -> None:
        """All that loading a model imports, which takes seconds."""
        self.build_policy()

    def save_result(self, run_dir: Path, policy: nn.Module) -> None:
        """The trained model with its tokenizer, as an ordinary Hugging Face folder."""
        trained: Any = policy
        fresh: Any = self.build_policy().model  # for the versions of a run share one piece of memory
        fresh.load_state_dict(trained.model.state_dict())
        merged = fresh.merge_and_unload() if self.task.lora_r else fresh
        save_folder(run_dir / MODEL_FOLDER, merged, self.tokenizer)


def new_game(task: TextTask, tokenizer: Any, prompt_of: Callable[[int], Prompt], is_training: bool = True) -> Game:
    """What episodes of a task are played with; those of an evaluation are played to their end at once."""
    from htsrl.language.answer_tokens import AnswerTokens
    from htsrl.language.environments import Environments
    from htsrl.language.episodes import Referee
    from htsrl.language.play import Game

    limits = task.limits if is_training else task.limits.without_budget()
    environments = None
    if task.environment is not None:
        environments = Environments(task.environment, task.environment_seconds, task.environment_attempts)
    referee = Referee(limits, end_tokens(task.model, tokenizer), environments is not None)

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(tokens, skip_special_tokens=True))

    return Game(referee, environments, AnswerTokens(tokenizer), decode, prompt_of)


def end_tokens(folder: str, tokenizer: Any) -> frozenset[int]:
    """What ends a text: the tokenizer's end, and those that the model's folder says it generates."""
    ends = {int(tokenizer.eos_token_id)}
    if (Path(folder) / "generation_config.json").is_file():
        listed = import_transformers().GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        ends |= {int(token) for token in (listed if isinstance(listed, list) else [listed]) if token is not None}
    return frozenset(ends)
