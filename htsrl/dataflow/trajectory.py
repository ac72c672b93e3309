"""The fields of a trajectory, declared once, from the environment's spaces.

Every field is an array `[storage, T, B, ...]`: as many storages as the schedule needs, T steps of an interval, B
columns, one for each agent of each environment (so one for each environment, unless they hold teams). What is stepped
in one call has neighbouring columns: the agents of an environment, or the environments of a lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from htsrl.dataflow.shared_arrays import ArraySpec
from htsrl.seeding import ActionNoise
from htsrl.spaces import Interface

NUM_STORAGES = 2
INFO_PREFIX = "info/"
SUCCESS = "is_success"
"""What environments say whether an episode reached its goal with; logged wherever it is there."""
RECURRENT_STATE = "memory"
"""The name stands in checkpoints, digests and exported models, and so it stays."""
BOOTSTRAP_VERSIONS = "bootstrap_versions"
FINAL_PREFIX = "final/"
STEP_INFO_PREFIX = "step_info/"
NO_ACTIVATIONS: Mapping[str, tuple[int, ...]] = MappingProxyType({})


@dataclass(frozen=True)
class Field:
    """One named quantity of every step."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    extra_rows: int = 0
    """Rows beyond the interval's steps: what follows the last one is wanted for its value."""
    learned_from: bool = True
    """Part of the batch."""
    for_metrics: bool = False
    """Read for metrics alone, and so not part of the digest."""
    derived: bool = False
    """Follows from what was seen and done and the version that acted, so checkpoints do without."""


@dataclass(frozen=True)
class LaneShape:
    """What the storages need to know of lanes."""

    num_envs: int
    """Of each."""
    idles: bool
    """Whether there are steps in which an environment only begins its next episode, from which nothing is learned."""


@dataclass(frozen=True)
class Stored:
    """What a run stores of every step beside what all do."""

    state_size: int = 0
    """Numbers of the policy's recurrent state."""
    activations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of what layers gave when acting."""
    activation_dtype: str = "float32"
    values_deferred: bool = False
    mixes_versions: bool = False
    truncates_on_error: bool = False
    excludes_on_error: bool = False
    log_info: Sequence[str] = ()
    """Keys of `info` whose numbers at an episode's end are logged."""
    own_fields: Sequence[Field] = ()
    """The algorithm's."""


@dataclass(frozen=True)
class TrajectorySpec:
    """Shapes and dtypes of all that an interval leaves behind."""

    num_steps: int
    num_envs: int
    """Environments, or lanes of them: what is stepped in one call."""
    num_agents: int
    """Columns of each: agents of a team, or environments of a lane."""
    is_team: bool
    fields: tuple[Field, ...]
    observation_names: tuple[str, ...]
    activation_names: tuple[str, ...]
    """What layers gave when acting, if that is kept for learning."""
    state_size: int
    """How many numbers the policy's recurrent state is, 0 where it has none."""
    values_deferred: bool
    """Whether log-probabilities and values are left to the learner, which adds them once a rollout is complete."""
    noise: ActionNoise
    num_storages: int = NUM_STORAGES
    is_lane: bool = False
    """Whether columns are environments of a lane, each with its own episodes."""

    @property
    def num_columns(self) -> int:
        return self.num_envs * self.num_agents

    def columns_of(self, env: int) -> int | slice:
        """The columns of an environment's agents, or of a lane; as a number where there can only be one, so that
        indexing drops the axis."""
        has_axis = self.is_team or self.is_lane
        return slice(env * self.num_agents, (env + 1) * self.num_agents) if has_axis else env

    def env_of(self, column: int) -> int:
        """The environment that a column belongs to."""
        return column if self.is_lane else column // self.num_agents

    @property
    def info_names(self) -> Mapping[str, str]:
        """The fields of the logged numbers of an episode's `info`, by key."""
        return {f.name.removeprefix(INFO_PREFIX): f.name for f in self.fields if f.name.startswith(INFO_PREFIX)}

    @property
    def final_names(self) -> Mapping[str, str]:
        """The fields of true next observations, by the name of the observation; none unless an algorithm asks."""
        return {f.name.removeprefix(FINAL_PREFIX): f.name for f in self.fields if f.name.startswith(FINAL_PREFIX)}

    @property
    def step_info_names(self) -> Mapping[str, str]:
        """The fields of what an algorithm wants of every step's `info`, by key."""
        names = (f.name for f in self.fields)
        return {name.removeprefix(STEP_INFO_PREFIX): name for name in names if name.startswith(STEP_INFO_PREFIX)}

    @property
    def hashed_names(self) -> tuple[str, ...]:
        """What the digest is made from: all that is learned from, but for what follows from the rest."""
        names = self.activation_names
        return tuple(f.name for f in self.fields if f.learned_from and not f.for_metrics and f.name not in names)

    @property
    def batch_names(self) -> tuple[str, ...]:
        """What a policy is given of a batch."""
        return (*self.observation_names, *self.activation_names)

    @property
    def input_names(self) -> tuple[str, ...]:
        """What a policy is given of a row: what is seen there, and its recurrent state from what went before."""
        return (*self.observation_names, RECURRENT_STATE) if self.state_size else self.observation_names

    def arrays(self) -> list[ArraySpec]:
        return [
            ArraySpec(f.name, (self.num_storages, self.num_steps + f.extra_rows, self.num_columns, *f.shape), f.dtype)
            for f in self.fields
        ]


def final_observations(interface: Interface) -> list[Field]:
    """What truly followed a step, of any space, where the next row cannot show it: the observation that ended an
    episode, before the reset, and the one after a rollout's last step. Zero elsewhere."""
    return [Field(FINAL_PREFIX + name, leaf.shape, leaf.dtype) for name, leaf in interface.observations.items()]


def step_info(key: str, shape: tuple[int, ...] = (), dtype: str = "float32") -> Field:
    """What the environment says under this key in the `info` of every step; of a team, a row for each agent."""
    return Field(STEP_INFO_PREFIX + key, shape, dtype)


def trajectory_spec(
    interface: Interface,
    num_steps: int,
    num_envs: int,
    stored: Stored = Stored(),
    team_size: int | None = None,
    lane: LaneShape | None = None,
    num_storages: int = NUM_STORAGES,
) -> TrajectorySpec:
    """The fields for environments with this interface, in the order in which a step fills them."""
    fields = [*_fields_of_all(interface, stored), *stored.own_fields]
    if team_size is not None or (lane and lane.idles) or stored.excludes_on_error:
        fields.append(Field("active", (), "bool"))  # whether the agent took part in the step
    if stored.truncates_on_error or stored.excludes_on_error:
        fields.append(Field("failures", (), "uint8"))  # steps and resets, in the environment's first column
    if stored.mixes_versions:
        fields.append(Field(BOOTSTRAP_VERSIONS, (), "int64"))  # -1 where no value was asked for
    return TrajectorySpec(
        num_steps,
        num_envs,
        num_agents=lane.num_envs if lane else team_size or 1,
        is_team=team_size is not None,
        fields=tuple(fields),
        observation_names=tuple(interface.observations),
        activation_names=tuple(stored.activations),
        state_size=stored.state_size,
        values_deferred=stored.values_deferred,
        noise=interface.actions.noise,
        num_storages=num_storages,
        is_lane=lane is not None,
    )


def _fields_of_all(interface: Interface, stored: Stored) -> list[Field]:
    observations, action, derived = interface.observations, interface.actions, stored.values_deferred
    info = dict.fromkeys((SUCCESS, *stored.log_info))
    return [
        *(Field(name, leaf.shape, leaf.dtype, extra_rows=1) for name, leaf in observations.items()),
        *([Field(RECURRENT_STATE, (stored.state_size,), "float32", extra_rows=1)] if stored.state_size else []),
        Field("noise", (action.noise.columns,), "float32", extra_rows=1, learned_from=False),
        Field("versions", (), "int64"),
        Field("actions", action.shape, action.dtype),
        Field("log_probs", (), "float32", derived=derived),
        Field("values", (), "float32", derived=derived),
        *(Field(name, shape, stored.activation_dtype, derived=True) for name, shape in stored.activations.items()),
        Field("rewards", (), "float32"),
        Field("terminated", (), "bool"),
        Field("truncated", (), "bool"),
        # The value of the true next observation, where `values` of the next row cannot say it:
        # after a truncated step, whose next row starts another episode, and after the last step.
        Field("bootstrap_values", (), "float32"),
        # Written where an episode ends, in the environment's first column; its length is zero everywhere else.
        Field("episode_returns", (), "float64"),
        Field("episode_lengths", (), "int64"),
        # Written beside them; not a number where the info holds none.
        *(Field(INFO_PREFIX + key, (), "float64", for_metrics=True) for key in info),
    ]
