"""What is stored of every completion: a row is a text, [storage, 1, B, ...]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from htsrl.dataflow.trajectory import INFO_PREFIX, Field, TrajectorySpec
from htsrl.seeding import ActionNoise

BLOCK_ROWS = 8
"""About so many neighbouring columns are scored, and looked at by the reference model, together: always the same."""

ENVIRONMENT = -1
"""What stands in place of a version at tokens that the environment wrote, and behind a completion's end."""
ENVIRONMENT_REWARD = "environment"
"""What metrics call the sum of an episode's rewards."""


@dataclass(frozen=True)
class TextSizes:
    """How large a rollout is."""

    num_columns: int
    """Completions of a rollout."""
    num_generations: int
    width: int
    """Tokens of a prompt and its completion together, at most."""
    max_completion: int

    @property
    def block_rows(self) -> int:
        """Whole groups of completions of one prompt."""
        return max(BLOCK_ROWS // self.num_generations, 1) * self.num_generations

    def block_of(self, column: int) -> int:
        return column // self.block_rows

    def blocks(self) -> list[tuple[int, ...]]:
        starts = range(0, self.num_columns, self.block_rows)
        return [tuple(range(start, min(start + self.block_rows, self.num_columns))) for start in starts]


def text_trajectory(
    sizes: TextSizes,
    num_storages: int,
    has_reference: bool,
    has_values: bool,
    recomputes: bool,
    rewards: Sequence[str],
    has_episodes: bool = False,
) -> TrajectorySpec:
    """Log-probabilities are the generator's; where it cannot have the learner's bits, the learner adds its own, or,
    of completions that several rollouts make, the generator itself from a pass over the whole text."""
    per_token = (sizes.max_completion,)
    fields = [
        Field("tokens", (sizes.width,), "int32"),
        Field("prompt_lengths", (), "int32"),
        Field("lengths", (), "int32"),
        Field("ordinals", (), "int64"),
        Field("versions", (), "int64"),
        Field("ended", (), "bool"),
        Field("scores", (), "float32"),
        Field("scored", (), "bool"),
        Field("log_probs", per_token, "float32", derived=recomputes and not has_episodes),
        *([Field("generated_log_probs", per_token, "float32")] if recomputes else []),
        *([Field("ref_log_probs", per_token, "float32", derived=True)] if has_reference else []),
        *([Field("values", per_token, "float32", derived=True)] if has_values else []),
        *(episode_fields(sizes) if has_episodes else []),
        # For the runtime's metrics: a completion is an episode.
        Field("episode_returns", (), "float64"),
        Field("episode_lengths", (), "int64"),
        *(Field(f"{INFO_PREFIX}{name}", (), "float64", for_metrics=True) for name in rewards),
    ]
    return TrajectorySpec(
        num_steps=1,
        num_envs=sizes.num_columns,
        num_agents=1,
        is_team=False,
        fields=tuple(fields),
        observation_names=(),
        activation_names=(),
        state_size=0,
        values_deferred=False,
        noise=ActionNoise(),
        num_storages=num_storages,
    )


def episode_fields(sizes: TextSizes) -> list[Field]:
    """What is stored beside of completions of several turns or rollouts: all that the next rollout continues from."""
    per_token = (sizes.max_completion,)
    return [
        Field("token_versions", per_token, "int64"),
        Field("turns", per_token, "int32"),
        Field("turn_rewards", per_token, "float32"),  # the environment's, at a turn's last token
        Field("states", (), "int8"),
        Field("num_answers", (), "int32"),
        Field("begun", (), "int64"),
        Field("carried", (), "int32"),
        Field("complete", (), "bool"),  # whether all completions of the prompt have ended: they are learned from now
    ]


def check_versions(episode_versions: Sequence[int], carried: int, acting: int, earliest: int) -> None:
    """The law of the lag, token by token: what this rollout drew is of the version that acts in it, what it took over
    is of versions that acted in the rollouts since the episode began, in their order."""
    drawn_before = [version for version in episode_versions[:carried] if version >= 0]
    drawn_here = [version for version in episode_versions[carried:] if version >= 0]
    assert all(version == acting for version in drawn_here), f"version {acting} acts, {drawn_here} drew tokens"
    assert all(a <= b for a, b in pairwise(drawn_before)), f"versions of an episode go back: {drawn_before}"
    assert all(earliest <= version <= acting for version in drawn_before), (
        f"versions {drawn_before} drew tokens between the acting versions {earliest} and {acting}"
    )
