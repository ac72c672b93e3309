"""Action masks: how they are read, that what they forbid is out of reach, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers import assert_same_run, run
from torch import Tensor

from htsrl import A2C, PPO, Config, ConfigError, EnvironmentFailure, Experiment, Network, Placement
from htsrl.digest import first_difference
from htsrl.envs.agents import agents_of
from htsrl.envs.look import interface_of
from htsrl.envs.observing import ObservationWriter
from htsrl.envs.team import Team
from htsrl.policies.distributions import Categorical, Choices, DiagonalGaussian, Distribution, Hybrid, masked
from htsrl.policies.policy import build_policy
from htsrl.seeding import ActionNoise
from htsrl.spaces import Interface, action_layout
from htsrl.spaces.masks import MaskReader
from htsrl.spaces.observations import MASK_KEY
from htsrl.survey import draw_blueprint

Info = dict[str, Any]
SEEN = spaces.Box(0.0, 1.0, (2,), np.float32)
FOUR = spaces.Discrete(4)
PAIR = spaces.MultiDiscrete([3, 2])
DEEP = spaces.Dict(
    {
        "a": spaces.Discrete(2),
        "b": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(-1.0, 1.0, (2,), np.float32))),
        "c": spaces.MultiBinary(2),
    }
)


def read(space: spaces.Space[Any], mask: Any, is_last: bool = False) -> list[int]:
    row = MaskReader(action_layout(space))(mask, is_last)
    assert row.dtype == np.bool_
    return [int(allowed) for allowed in row]


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask",
    [
        np.array([0, 1, 0, 1], np.int8),
        np.array([False, True, False, True]),
        np.array([0.0, 1.0, 0.0, 1.0]),
        [0, 1, 0, 1],
        (0, 1, 0, 1),
        np.array([[0, 1], [0, 1]]),
    ],
    ids=["int8", "bool", "float", "list", "tuple", "2d"],
)
def test_the_mask_of_a_choice_is_any_row_of_numbers(mask: Any) -> None:
    assert read(FOUR, mask) == [0, 1, 0, 1]


def test_none_allows_everything() -> None:
    assert read(FOUR, None) == [1, 1, 1, 1]
    assert read(DEEP, None) == [1] * 11


@pytest.mark.parametrize("mask", [np.array([1, 0, 1, 0, 1]), (np.array([1, 0, 1]), np.array([0, 1]))])
def test_the_mask_of_several_choices_is_a_row_or_a_tuple_of_rows(mask: Any) -> None:
    assert read(PAIR, mask) == [1, 0, 1, 0, 1]


def test_the_mask_of_bits_says_of_each_whether_it_may_be_0_and_1() -> None:
    assert read(spaces.MultiBinary(2), np.array([[1, 0], [0, 1]])) == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (np.array([1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1]), [1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1]),
        ({"a": [0, 1]}, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ({"a": None, "b": ([0, 1, 1, 0, 0],)}, [1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1]),
        ({"b": (([1, 0], [0, 0, 1]), None), "c": [1, 0, 0, 1]}, [1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1]),
        ({"c": [0, 1, 1, 1], "a": [1, 0]}, [1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1]),
    ],
    ids=["flat", "one part", "none is free", "tuples", "any order"],
)
def test_a_nested_mask_is_brought_into_the_order_of_the_logits(mask: Any, expected: list[int]) -> None:
    assert read(DEEP, mask) == expected


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (FOUR, [1, 1, 1], r"^the action mask has 3 values of int64; Discrete\(4\) needs 4, of 0 and 1$"),
        (FOUR, [1, 1, 1, 1, 1], "has 5 values"),
        (FOUR, 1, "has 1 values"),
        (FOUR, ["a", "b", "c", "d"], "has 4 values of <U1"),
        (PAIR, ([1, 1], [1, 1]), r"has 4 values of int64; MultiDiscrete\(\[3 2\]\) needs 5, of 0 and 1"),
        (DEEP, {"a": [1, 1, 1]}, r"has 3 values of int64; Discrete\(2\) needs 2, of 0 and 1"),
        (DEEP, {"z": [1, 1]}, r"has the parts \['z'\], which the action space has not"),
        (DEEP, {"b": (None, [1])}, "a part for Box.*, which is no choice; leave it out"),
        (DEEP, {"b": (None, None, None)}, r"has the parts \[2\], which the action space has not"),
    ],
)
def test_a_mask_that_does_not_fit_is_named_with_what_it_should_be(
    space: spaces.Space[Any], mask: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(space, mask)


def test_a_mask_that_allows_nothing_is_an_error_while_the_episode_goes_on() -> None:
    with pytest.raises(ValueError, match=r"^the action mask allows nothing; while the episode goes on"):
        read(FOUR, [0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"allows nothing for \[1\]"):
        read(PAIR, [1, 0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"allows nothing for \['b'\]\[0\]\[1\]"):
        read(DEEP, {"b": ([1, 1, 0, 0, 0], None)})


def test_after_the_last_step_a_choice_left_with_nothing_is_free_and_the_others_stay() -> None:
    assert read(FOUR, [0, 0, 0, 0], is_last=True) == [1, 1, 1, 1]
    assert read(PAIR, [0, 1, 0, 0, 0], is_last=True) == [0, 1, 0, 1, 1]
    assert read(PAIR, [0, 0, 0, 1, 0], is_last=True) == [1, 1, 1, 1, 0]


def test_reading_a_mask_leaves_the_environments_own_as_it_was() -> None:
    mask = np.zeros(4, np.bool_)
    read(FOUR, mask, is_last=True)
    assert not mask.any()


# --- what a mask does to a distribution ------------------------------------------------------------------------------

NUM_DRAWS = 40_000
LOGITS = [0.3, 4.0, -1.0, 0.0, 2.0, 0.5]


def hybrid(outputs: Tensor, mask: Tensor | None) -> Distribution:
    """A choice of 4, one of 2, and a number."""
    choices = Choices(masked(outputs[:, :6], mask), (4, 2))
    return Hybrid(choices, DiagonalGaussian(outputs[:, 6:], torch.zeros(1)), 2, 6)


def test_what_is_forbidden_is_never_sampled_and_the_rest_as_often_as_before_among_themselves() -> None:
    """Chi-square at 0.1 %: 13.82 with two degrees of freedom."""
    mask = torch.tensor([True, False, True, True, False, True])
    outputs = torch.tensor([*LOGITS, 0.0]).expand(NUM_DRAWS, -1)
    noise = torch.from_numpy(ActionNoise(gumbel=6, normal=1).draw(0, env=0, first_step=0, num_steps=NUM_DRAWS))
    actions = hybrid(outputs, mask.expand(NUM_DRAWS, -1)).sample(noise)
    counts = np.bincount(actions[:, 0].long().numpy(), minlength=4)
    assert counts[1] == 0
    assert (actions[:, 1] == 1).all()
    expected = torch.tensor([0.3, -1.0, 0.0]).softmax(0).numpy() * NUM_DRAWS
    assert ((counts[[0, 2, 3]] - expected) ** 2 / expected).sum() < 13.82


@pytest.mark.parametrize("logit", [0.0, 50.0, 1e4])
def test_what_is_forbidden_is_not_the_mode_and_has_no_probability_however_likely_it_was(logit: float) -> None:
    mask = torch.tensor([[True, False, True]])
    distribution = Categorical(masked(torch.tensor([[0.0, logit, 1.0]]), mask))
    assert distribution.mode().tolist() == [2]
    assert distribution.log_probs.exp()[0, 1] == 0.0
    free: Any = torch.distributions.Categorical(logits=torch.tensor([[0.0, 1.0]]))
    torch.testing.assert_close(distribution.entropy(), free.entropy())
    torch.testing.assert_close(distribution.log_prob(torch.tensor([0])), free.log_prob(torch.tensor([0])))


def test_the_only_value_that_is_allowed_is_certain() -> None:
    distribution = Categorical(masked(torch.tensor([[0.0, 9.0, -9.0]]), torch.tensor([[False, False, True]])))
    assert distribution.log_prob(torch.tensor([2])).item() == 0.0
    assert distribution.entropy().item() == 0.0


@pytest.mark.parametrize("through", ["log_prob", "entropy"])
def test_no_gradient_reaches_what_is_forbidden(through: str) -> None:
    outputs = torch.tensor([[*LOGITS, 0.5]], requires_grad=True)
    mask = torch.tensor([[True, False, True, True, False, True]])
    distribution = hybrid(outputs, mask)
    value = distribution.log_prob(torch.tensor([[2.0, 1.0, 0.1]])) if through == "log_prob" else distribution.entropy()
    (gradient,) = torch.autograd.grad(value.sum(), outputs)
    assert gradient.isfinite().all()
    assert gradient[0, [1, 4]].tolist() == [0.0, 0.0]
    assert (gradient[0, [0, 2, 3]] != 0).all()


def test_the_row_of_a_policys_head_that_a_mask_forbids_learns_nothing() -> None:
    policy = build_policy(spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(4)}), FOUR, Network(), seed=1)
    seen = {"obs/x": torch.rand(8, 2), MASK_KEY: torch.tensor([True, False, True, True]).expand(8, -1)}
    distribution, _ = policy(seen)
    (distribution.log_prob(torch.zeros(8, dtype=torch.long)) + distribution.entropy()).sum().backward()
    assert policy.action_head.weight.grad is not None
    assert (policy.action_head.weight.grad.abs().sum(dim=1) > 0).tolist() == [True, False, True, True]


# --- where masks come from -------------------------------------------------------------------------------------------


def writer_for(mask_in: str) -> tuple[ObservationWriter, dict[str, Any]]:
    observations = spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(4)}) if mask_in == "observation" else SEEN
    interface = Interface(observations, FOUR, masks_in_info=mask_in == "info")
    return ObservationWriter(interface), interface.empty_rows()


def test_a_mask_is_taken_from_where_it_was_found_first() -> None:
    writer, rows = writer_for("observation")
    writer.write_mask({MASK_KEY: [1, 0, 0, 1]}, {}, rows)
    assert rows[MASK_KEY].tolist() == [True, False, False, True]
    writer, rows = writer_for("info")
    writer.write_mask(None, {MASK_KEY: [0, 1, 0, 1]}, rows)
    assert rows[MASK_KEY].tolist() == [False, True, False, True]


def test_a_mask_that_info_lacks_is_an_error_except_after_the_last_step() -> None:
    writer, rows = writer_for("info")
    with pytest.raises(ValueError, match="info has no action_mask, which it had after the first reset; return it"):
        writer.write_mask(None, {}, rows)
    writer.write_mask(None, {}, rows, is_last=True)
    assert rows[MASK_KEY].tolist() == [True] * 4


def test_without_masks_there_is_no_field_for_them() -> None:
    writer, rows = writer_for("nowhere")
    writer.write_mask(None, {MASK_KEY: [0, 0, 0, 0]}, rows)
    assert MASK_KEY not in rows


@pytest.mark.parametrize("masks_in_info", [True, False])
def test_a_mask_without_choices_is_refused(masks_in_info: bool) -> None:
    observations = SEEN if masks_in_info else spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(2)})
    with pytest.raises(ConfigError, match=r"there is an action_mask, but action space Box.* has no choices"):
        Interface(observations, spaces.Box(-1.0, 1.0, (2,), np.float32), masks_in_info)


@pytest.mark.parametrize(
    ("mask", "action"),
    [
        (spaces.MultiBinary(3), FOUR),
        (spaces.Dict({"z": spaces.MultiBinary(2)}), DEEP),
        (spaces.Tuple((spaces.MultiBinary(3), spaces.MultiBinary(3))), PAIR),
    ],
)
def test_a_mask_in_the_observation_that_does_not_fit_is_refused(
    mask: spaces.Space[Any], action: spaces.Space[Any]
) -> None:
    with pytest.raises(
        ConfigError, match=r"the observation's action_mask, .*, does not fit the actions: the action mas"
    ):
        Interface(spaces.Dict({"x": SEEN, MASK_KEY: mask}), action)


@pytest.mark.parametrize(
    ("mask", "action"),
    [
        (spaces.Box(0, 1, (4,), np.int8), FOUR),
        (spaces.Tuple((spaces.MultiBinary(3), spaces.MultiBinary(2))), PAIR),
        (spaces.Dict({"a": spaces.MultiBinary(2)}), DEEP),
    ],
)
def test_a_mask_in_the_observation_may_have_the_structure_of_the_action(
    mask: spaces.Space[Any], action: spaces.Space[Any]
) -> None:
    interface = Interface(spaces.Dict({"x": SEEN, MASK_KEY: mask}), action)
    assert interface.observations[MASK_KEY].shape == (sum(interface.actions.categories),)
    assert list(interface.observations) == ["obs/x", MASK_KEY]


def test_looking_at_a_mask_does_not_draw_from_the_environments_own_space() -> None:
    space = spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(4)})
    space.seed(1)
    expected = space.sample()
    space.seed(1)
    Interface(space, FOUR)
    np.testing.assert_equal(space.sample(), expected)


# --- in runs ---------------------------------------------------------------------------------------------------------


LAST_SEED_OF_THE_SURVEY = 5
NUM_LINKS = 4


class Turnstile(gymnasium.Env[Any, np.int64]):
    """Of four gates the one that the clock names is shut; says nothing of it, or something wrong, when told to.

    Who runs into it gets an exception, except in the survey before a run, which tries any actions.
    """

    def __init__(self, fault: str = "", at_step: int = 14, length: int = 5) -> None:
        self.observation_space, self.action_space = SEEN, FOUR
        self._fault, self._at_step, self._length = fault, at_step, length
        self._total = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        self._is_strict = seed is not None and seed > LAST_SEED_OF_THE_SURVEY
        return self._seen(), self._info(is_last=False)

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, Info]:
        self._bump(action)
        self._steps += 1
        self._total += 1
        ended = self._steps == self._length
        return self._seen(), float(action), ended and self._total % 2 == 0, ended, self._info(ended)

    def _bump(self, action: np.int64) -> None:
        if action == self._steps % 4 and self._is_strict:
            raise RuntimeError(f"gate {action} is shut")

    def _seen(self) -> Any:
        return np.array([self._steps / self._length, 1.0], np.float32)

    def _info(self, is_last: bool) -> Info:
        mask = np.ones(4, np.int8)
        mask[self._steps % 4] = 0
        if self._fault == "nothing after the end":
            return {MASK_KEY: mask * 0} if is_last else {MASK_KEY: mask}
        if self._fault == "missing after the end":
            return {} if is_last else {MASK_KEY: mask}
        if self._fault and self._total >= self._at_step:
            return {"missing": {}, "nothing": {MASK_KEY: mask * 0}, "short": {MASK_KEY: mask[:3]}}[self._fault]
        return {MASK_KEY: mask}


def short_run(env: Any, **experiment: Any) -> Experiment:
    return Experiment(env, algorithm=A2C(), num_envs=2, sync_interval=6, total_steps=48, **experiment)


@pytest.mark.parametrize("fault", ["", "nothing after the end", "missing after the end"])
def test_a_run_respects_the_masks_of_info_and_asks_for_none_after_the_last_step(fault: str) -> None:
    """The environment itself refuses what is forbidden; its episodes are truncated and terminated by turns."""
    assert len(run(short_run(lambda: Turnstile(fault))).links) == NUM_LINKS


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("missing", "info has no action_mask, which it had after the first reset; return it after every step"),
        ("nothing", "the action mask allows nothing; while the episode goes on, something must be allowed"),
        ("short", r"the action mask has 3 values of int8; Discrete\(4\) needs 4, of 0 and 1"),
    ],
)
def test_a_mask_that_goes_wrong_in_mid_run_is_blamed_on_its_environment(fault: str, message: str) -> None:
    with pytest.raises(EnvironmentFailure, match=rf"environment \d broke a rule in step\(.*{message}"):
        run(short_run(lambda: Turnstile(fault)))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nothing", r"Turnstile: in reset\(seed=0\), the action mask allows nothing"),
        ("short", "Turnstile: in reading its action mask, the action mask has 3 values"),
    ],
)
def test_a_mask_that_is_wrong_from_the_start_is_a_config_error(fault: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draw_blueprint(Config(short_run(lambda: Turnstile(fault, at_step=0)), Placement("inline")))


def test_the_mask_of_a_continuous_environment_is_refused_before_anything_starts() -> None:
    def make() -> gymnasium.Env[Any, Any]:
        env = Turnstile()
        env.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)  # type: ignore[assignment]
        env.step = lambda action: (env._seen(), 0.0, False, False, env._info(False))  # type: ignore[method-assign]
        return env

    with pytest.raises(ConfigError, match="there is an action_mask, but action space Box"):
        draw_blueprint(Config(short_run(make), Placement("inline")))


@pytest.mark.parametrize(
    ("algorithm", "memory"), [(A2C(), "none"), (PPO(epochs=2, num_minibatches=2), "lstm")], ids=["a2c", "ppo lstm"]
)
def test_a_run_is_the_same_wherever_its_masks_are(algorithm: Any, memory: Any) -> None:
    in_observation, in_info, nowhere = (
        run(
            Experiment(
                "htsrl/Lock-v0",
                {"num_actions": 12, "length": 7, "mask_in": mask_in},
                algorithm=algorithm,
                network=Network(memory=memory, memory_size=8),
                num_envs=4,
                sync_interval=8,
                total_steps=128,
            )
        )
        for mask_in in ("observation", "info", "nowhere")
    )
    assert_same_run(in_observation, in_info)
    assert first_difference(in_observation.links, nowhere.links) is not None


class Gatekeepers(Team):
    """Two agents, each with a mask of its own in info; the second goes after three steps, and has none from then on."""

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = SEEN
        self.action_space: spaces.Space[Any] = FOUR
        self.num_agents = 2
        self.active = np.zeros(2, np.bool_)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps, self.active = 0, np.ones(2, np.bool_)
        self._is_strict = seed is not None and seed > LAST_SEED_OF_THE_SURVEY
        return np.zeros((2, 2), np.float32), self._info()

    def step(self, action: Any) -> Any:
        if self._is_strict:
            assert all(action[agent] == self._allowed(agent) for agent in np.flatnonzero(self.active))
        self._steps += 1
        before, self.active = self.active, np.array([self._steps < 5, self._steps < 3])
        return np.zeros((2, 2), np.float32), np.ones(2), before & ~self.active, np.zeros(2, np.bool_), self._info()

    def _allowed(self, agent: Any) -> int:
        return int(self._steps + agent) % 4

    def _info(self) -> Info:
        masks = [np.eye(4, dtype=np.int8)[self._allowed(agent)] for agent in range(2)]
        return {MASK_KEY: [mask if self.active[agent] else mask * 0 for agent, mask in enumerate(masks)]}


def test_every_agent_of_a_team_has_the_mask_that_info_gives_it() -> None:
    env = Gatekeepers()
    interface = interface_of(env, Network())
    rows = interface.empty_rows(2)
    agents = agents_of(env, interface)
    agents.reset(0, rows)
    assert rows[MASK_KEY].astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    for action in ([0, 1], [1, 2], [2, 3]):
        agents.step(np.array(action), rows)
    assert rows[MASK_KEY].astype(int).tolist() == [[0, 0, 0, 1], [1, 1, 1, 1]]
    assert len(run(short_run(Gatekeepers)).links) == NUM_LINKS


class Strict(Turnstile):
    """Refuses what is forbidden from the first reset on."""

    def _bump(self, action: np.int64) -> None:
        if action == self._steps % 4:
            raise RuntimeError(f"gate {action} is shut")


def test_an_environment_may_raise_for_what_its_mask_forbids() -> None:
    assert len(run(short_run(Strict)).links) == NUM_LINKS


class SelfWriting(Turnstile):
    """Writes its observations where it is told to, and its masks into info."""

    def reset_into(self, place: Any, *, seed: int) -> Info:
        place[...], info = self.reset(seed=seed)
        return info

    def step_into(self, action: np.int64, place: Any) -> tuple[float, bool, bool, Info]:
        place[...], *rest = self.step(action)
        return tuple(rest)  # type: ignore[return-value]


def test_an_environment_that_writes_its_own_observation_can_have_masks() -> None:
    assert len(run(short_run(SelfWriting)).links) == NUM_LINKS
