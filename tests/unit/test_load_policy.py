"""A policy in one's hands does what evaluation does, for one observation or many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import htsrl
from htsrl import A2C, Config, ConfigError, Experiment, Network, Placement, evaluate, load_policy
from htsrl.policies.policy import build_policy
from htsrl.runs.trained_policy import MAX_ROWS, TrainedPolicy
from htsrl.seeding import Purpose, reset_seed
from htsrl.spaces import Interface
from htsrl.spaces.document import interface_document, read_interface


class Dependent(nn.Module):
    """Gives a row other numbers in a batch of another size, as kernels may."""

    num_features = 4

    def __init__(self, space: Any) -> None:
        super().__init__()

    def forward(self, obs: Tensor) -> Tensor:
        return obs * (1 + 0.3 * len(obs))


def train(path: Path, normalize_rewards: bool = False, **network: Any) -> Path:
    settings: dict[str, Any] = {"hidden_sizes": (16,)} if network.get("policy") is None else {}
    experiment = Experiment(
        "CartPole-v1",
        env_args={"max_episode_steps": 30},
        algorithm=A2C(learning_rate=0.02, normalize_rewards=normalize_rewards),
        network=Network(**settings, **network),
        num_envs=4,
        sync_interval=8,
        total_steps=640,
    )
    return htsrl.train(Config(experiment, Placement("inline", run_dir=path, tensorboard=False, progress="off"))).run_dir


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "LSTM": {"recurrent": "lstm", "recurrent_size": 8},
    "normalised GRU": {
        "recurrent": "gru",
        "recurrent_size": 8,
        "normalize_observations": True,
        "normalize_rewards": True,
    },
    "own network": {"policy": Dependent},
}


@pytest.fixture(scope="module", params=KINDS)
def run_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("load_policy") / "run", **KINDS[request.param])


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_a_loop_of_ones_own_plays_the_episodes_of_evaluate(run_dir: Path, sampled: bool) -> None:
    policy, env, seed = load_policy(run_dir), gymnasium.make("CartPole-v1", max_episode_steps=30), 5
    evaluation = evaluate(run_dir, episodes=4, seed=seed, sampled=sampled)
    for episode in range(4):
        obs, _ = env.reset(seed=reset_seed(seed, 0, episode, Purpose.EVALUATION_RESET))
        length, over, state = 0, False, None
        while not over:
            draw = {"seed": seed, "step": length, "episode": episode} if sampled else {}
            action, state = policy.act(obs, state, **draw)
            obs, _, terminated, truncated, _ = env.step(action)
            length, over = length + 1, terminated or truncated
        assert length == evaluation.lengths[episode]


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_an_episode_is_the_same_however_many_are_played(run_dir: Path, sampled: bool) -> None:
    three, ten, many = (evaluate(run_dir, n, seed=3, sampled=sampled) for n in (3, 10, 21))
    assert many.returns[:10] == ten.returns
    assert ten.returns[:3] == three.returns
    assert len(set(many.lengths)) > 1


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_a_row_of_a_batch_is_answered_as_alone(run_dir: Path, sampled: bool) -> None:
    policy, rng, rows = load_policy(run_dir), np.random.default_rng(0), MAX_ROWS + 5
    batch = rng.normal(size=(rows, 4)).astype(np.float32)
    states = rng.normal(size=(rows, policy.policy.state_size)).astype(np.float32) if policy.policy.state_size else None
    draws = [{"seed": 1, "step": i, "episode": 2} if sampled else {} for i in range(rows)]
    draw: Any = {"seed": 1, "step": range(rows), "episode": 2} if sampled else {}
    actions, following = policy.act(batch, states, **draw)
    assert actions.shape == (rows,)
    for i in range(rows):
        action, state = policy.act(batch[i], None if states is None else states[i], **draws[i])
        assert action == actions[i]
        assert (state is None) == (following is None)
        if state is not None and following is not None:
            assert np.array_equal(state, following[i])
    assert np.array_equal(policy.act(list(batch), states, **draw)[0], actions)


def in_hand(observation_space: Any, action_space: Any, masks_in_info: bool = False, **network: Any) -> TrainedPolicy:
    """A policy that has never been trained, for spaces of any kind."""
    policy = build_policy(observation_space, action_space, Network(**network), seed=0)
    if masks_in_info:
        policy.interface = Interface(observation_space, action_space, masks_in_info=True)
    return TrainedPolicy(policy, 0, Path())


def test_masks_are_kept_to_in_the_observation_and_beside_it() -> None:
    box, discrete = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)
    seen = in_hand(spaces.Dict(x=box, action_mask=spaces.MultiBinary(4)), discrete)
    beside = in_hand(box, discrete, masks_in_info=True)
    x, batch = np.zeros(3, np.float32), np.zeros((4, 3), np.float32)
    masks = np.eye(4, dtype=np.int8)
    for allowed in range(4):
        for draw in ({}, {"seed": 3, "step": allowed}):
            assert seen.act({"x": x, "action_mask": masks[allowed]}, **draw)[0] == allowed  # type: ignore[arg-type]
            assert beside.act(x, action_mask=masks[allowed], **draw)[0] == allowed  # type: ignore[arg-type]
    assert seen.act({"x": batch, "action_mask": masks})[0].tolist() == [0, 1, 2, 3]
    assert beside.act(batch, action_mask=masks)[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="needs action_mask"):
        beside.act(x)
    with pytest.raises(ConfigError, match="allows nothing"):
        beside.act(x, action_mask=np.zeros(4, np.int8))


def test_nested_observations_and_actions_keep_their_structure() -> None:
    seen = spaces.Dict(a=spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,)))), b=spaces.MultiBinary(2))
    done = spaces.Dict(gear=spaces.Discrete(3, start=1), wheel=spaces.Box(-1, 1, (2,)))
    policy = in_hand(seen, done)
    seen.seed(0)
    observations = [seen.sample() for _ in range(3)]
    actions, _ = policy.act(observations)
    stacked = {
        "a": tuple(np.stack([o["a"][i] for o in observations]) for i in (0, 1)),
        "b": np.stack([o["b"] for o in observations]),
    }
    for i, action in enumerate(policy.act(stacked)[0]):
        assert done.contains(action)
        for other in (actions[i], policy.act(observations[i])[0]):
            assert other["gear"] == action["gear"]
            assert np.array_equal(other["wheel"], action["wheel"])


def test_what_does_not_fit_is_refused_in_words(run_dir: Path) -> None:
    policy, obs = load_policy(run_dir), np.zeros(4, np.float32)
    for wrong in (np.zeros(3, np.float32), np.zeros(4), {"obs": obs}, None, np.full(4, np.nan, np.float32)):
        with pytest.raises(ConfigError, match="not what the policy was trained on"):
            policy.act(wrong)
    with pytest.raises(ConfigError, match="a seed needs a step"):
        policy.act(obs, seed=1)
    with pytest.raises(ConfigError, match=r"3 steps and 1 episodes for 2 observations"):
        policy.act(np.stack([obs, obs]), seed=1, step=[1, 2, 3])
    with pytest.raises(ConfigError, match="state"):
        policy.act(obs, state=np.zeros(3, np.float32))
    with pytest.raises(ConfigError, match="takes no action_mask"):
        policy.act(obs, action_mask=[1, 1])


def test_acting_leaves_torch_as_it_was(run_dir: Path) -> None:
    policy, before = load_policy(run_dir), torch.get_rng_state()
    threads = torch.get_num_threads()
    policy.act(np.zeros(4, np.float32), seed=0, step=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


SPACES: list[spaces.Space[Any]] = [
    spaces.Box(-np.inf, np.inf, (2, 3)),
    spaces.Box(np.array([-1.1, -np.inf], np.float32), np.array([0.1, 5], np.float32)),
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(-1, 1, (2,), np.float64),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[1, 0], [0, 7]])),
    spaces.MultiBinary([2, 3]),
    spaces.Dict(z=spaces.Discrete(2), a=spaces.Tuple((spaces.MultiBinary(3), spaces.Box(0, 1, (1,))))),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_spaces_survive_their_description(space: spaces.Space[Any]) -> None:
    interface = Interface(space, spaces.Discrete(2), squashes=True)
    read = read_interface(interface_document(interface))
    assert read == interface
    assert read.observations == interface.observations


def test_a_space_of_somebody_elses_is_not_described() -> None:
    class Odd(spaces.Box):
        pass

    assert interface_document(Interface(Odd(0, 1, (2,)), spaces.Discrete(2))) is None
