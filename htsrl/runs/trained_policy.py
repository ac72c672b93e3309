"""A trained policy in one's hands: observations in, actions out, in this process and without an environment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.config import Experiment
from htsrl.config.algorithm_settings import NamedAlgorithm
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.envs.observing import ObservationWriter, Rows
from htsrl.errors import ConfigError, RunFolderError
from htsrl.placements.acting import batch_sizes
from htsrl.policies.normalization import RewardScale
from htsrl.policies.policy import Policy, policy_for
from htsrl.runs.saved_policy import SavedPolicy
from htsrl.seeding import Purpose
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY, parts_of

MAX_ROWS = 16
"""Larger batches are computed in pieces of so many rows, or a few more."""
Array = NDArray[Any]


class TrainedPolicy:
    """One version of a policy; whoever asks, and beside whom, an observation has the same answer to the bit."""

    def __init__(self, policy: Policy, version: int, source: Path) -> None:
        self.policy = policy.eval().requires_grad_(False)
        """The network itself, in torch."""
        self.version = version
        """How many updates it has learned from."""
        self.source = source
        """The file or the checkpoint that it was read from."""
        self._writer = ObservationWriter(policy.interface)

    @classmethod
    def of(cls, experiment: Experiment, interface: Interface, saved: SavedPolicy) -> TrainedPolicy:
        """RunFolderError where what was saved is not a policy of this experiment."""
        try:
            if experiment.network.policy is None:
                # Looked at before any memory is taken: a configuration may ask for more than there is.
                with torch.device("meta"):
                    saved.check(_policy_of(experiment, interface, saved))
            policy = _policy_of(experiment, interface, saved)
            saved.fill(policy)
        except (RuntimeError, TypeError, MemoryError, OverflowError) as error:
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise RunFolderError(
                f"{saved.path} does not fit this run: {reason}; was its config.json changed?"
            ) from error
        except RunFolderError as error:
            if not isinstance(algorithm := experiment.algorithm, NamedAlgorithm):
                raise
            raise RunFolderError(
                f"{error} Or does the algorithm {algorithm.name!r} say how actions are drawn? Its code is not here, or "
                "may not run (--trust, trust=True)"
            ) from error
        return cls(policy, saved.version, saved.path)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """Found when the first question is asked: it takes longer than all else, and not everyone asks."""
        return batch_sizes(self.policy, MAX_ROWS)

    @property
    def interface(self) -> Interface:
        return self.policy.interface

    @property
    def state_size(self) -> int:
        """Numbers of the recurrent state; 0 without one."""
        return self.policy.state_size

    @property
    def observation_space(self) -> spaces.Space[Any]:
        return self.interface.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        return self.interface.action_space

    def act(
        self,
        observation: Any,
        state: Array | None = None,
        *,
        action_mask: Any = None,
        seed: int | None = None,
        step: int | Sequence[int] | None = None,
        episode: int | Sequence[int] = 0,
    ) -> tuple[Any, Array | None]:
        """The action for an observation, and the recurrent state after it (None where the policy has none).

        A list of observations, or arrays with one more axis in front, is a batch, and so are the actions and the
        state then. `state` is what the call before returned; None at the beginning of an episode, and rows of zeros
        for those of a batch that begin. `action_mask` is `info["action_mask"]`, where masks are there.

        Without a seed the likeliest action is taken. With one it is drawn, by noise that is a function of (seed,
        episode, step) alone: the same three give the same action, and what `htsrl.evaluate(sampled=True)` plays with
        that seed in that episode. In a batch, steps and episodes may be lists with a number for each row; a
        single step is that of a team, whose members have noise of their own.
        """
        num_rows = self._batch_size(observation)
        rows = self._rows(observation, num_rows, action_mask)
        states = self._states(state, num_rows)
        noise = None if seed is None else self._noise(seed, step, episode, num_rows)
        stored, states = self.answer(rows, states, noise)
        to_env = self.interface.actions.to_env
        if num_rows is None:
            return to_env(stored[0]), None if states is None else states[0]
        actions = [to_env(row) for row in stored]
        is_nested = isinstance(self.action_space, spaces.Dict | spaces.Tuple)
        return actions if is_nested else np.array(actions), states

    def answer(self, rows: Rows, states: Array | None, noise: Array | None) -> tuple[Array, Array | None]:
        """Actions as they are stored, and recurrent states, for rows of observations as `interface` has them."""
        inputs = rows if states is None else {**rows, RECURRENT_STATE: states}
        parts = [] if noise is None else [noise]
        count = len(next(iter(rows.values())))
        with torch.inference_mode(), _one_thread():
            most = self._sizes[-1]
            answers = [
                self._answer_batch(
                    {name: array[first : first + most] for name, array in inputs.items()},
                    [part[first : first + most] for part in parts],
                )
                for first in range(0, count, most)
            ]
        actions, following = zip(*answers, strict=True)
        return np.concatenate(actions), None if states is None else np.concatenate(following)

    def outputs(self, rows: Rows, states: Array | None) -> tuple[Array, Array]:
        """What answers are made from, a row each: logits of choices and means of continuous dimensions, and values."""
        inputs = rows if states is None else {**rows, RECURRENT_STATE: states}
        actions = self.interface.actions
        count, width = len(next(iter(rows.values()))), sum(actions.categories) + actions.num_continuous
        found = []
        with torch.inference_mode(), _one_thread():
            most = self._sizes[-1]
            for first in range(0, count, most):
                part = {name: array[first : first + most] for name, array in inputs.items()}
                tensors, size = self._padded(part)
                found.append(self.policy.outputs(tensors)[:size, : width + 1].numpy())
        columns = np.concatenate(found)
        return columns[:, :width], columns[:, width]

    def _padded(self, inputs: Rows) -> tuple[dict[str, torch.Tensor], int]:
        """In a batch of a size that was found good, and how many of its rows count."""
        count = len(next(iter(inputs.values())))
        size = self._sizes[bisect_left(self._sizes, count)]
        padded = np.minimum(np.arange(size), count - 1)
        return {name: torch.from_numpy(array[padded]) for name, array in inputs.items()}, count

    def _answer_batch(self, inputs: Rows, noise: list[Array]) -> tuple[Array, Array]:
        tensors, count = self._padded(inputs)
        distribution, _, states = self.policy.respond(tensors)
        padded = np.minimum(np.arange(len(next(iter(tensors.values())))), count - 1)
        drawn = [distribution.sample(torch.from_numpy(of_rows[padded])) for of_rows in noise]
        actions = drawn[0] if drawn else distribution.mode()
        return actions[:count].numpy(), actions[:0].numpy() if states is None else states[:count].numpy()

    def _batch_size(self, observation: Any) -> int | None:
        """None for a single observation."""
        if isinstance(observation, list):
            return len(observation)
        leaf = next(leaf for name, leaf in self.interface.observations.items() if name != MASK_KEY)
        part = self._checked(lambda: _at(observation, leaf.path))
        return len(part) if np.ndim(part) == len(leaf.shape) + 1 else None

    def _rows(self, observation: Any, num_rows: int | None, action_mask: Any) -> Rows:
        if num_rows == 0:
            raise ConfigError("a batch needs at least one observation")
        if (action_mask is not None) != self.interface.masks_in_info:
            wanted = "needs" if self.interface.masks_in_info else "takes no"
            raise ConfigError(f"this policy {wanted} action_mask; it is for environments with info['action_mask']")
        rows = self.interface.empty_rows(num_rows or 1)
        for row in range(num_rows or 1):
            own = {name: array[row, ...] for name, array in rows.items()}
            seen = observation
            if num_rows is not None:
                seen = observation[row] if isinstance(observation, list) else self._nth(observation, row)
            mask = action_mask if num_rows is None or action_mask is None else action_mask[row]
            self._checked(lambda own=own, seen=seen, mask=mask: self._write(own, seen, mask))  # type: ignore[misc]
        return rows

    def _write(self, rows: Rows, observation: Any, mask: Any) -> None:
        self._writer.write(observation, rows)
        self._writer.write_mask(observation, {} if mask is None else {MASK_KEY: mask}, rows)

    def _nth(self, observation: Any, row: int) -> Any:
        return self._checked(lambda: _row_of(self.observation_space, observation, row))

    def _checked(self, take: Callable[[], Any]) -> Any:
        try:
            return take()
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ConfigError(
                f"this is not what the policy was trained on ({type(error).__name__}: {error}); give it observations "
                f"of {self.observation_space}, as the environment returns them"
            ) from error

    def _states(self, state: Array | None, num_rows: int | None) -> Array | None:
        size = self.policy.state_size
        if not size:
            if state is not None:
                raise ConfigError("this policy has no recurrent state; leave it out")
            return None
        shape = (size,) if num_rows is None else (num_rows, size)
        states = np.zeros(shape, np.float32) if state is None else np.asarray(state, np.float32)
        if states.shape != shape:
            raise ConfigError(f"state has shape {states.shape}, it must be {shape}; pass what act returned")
        return states.reshape(-1, size)

    def _noise(
        self, seed: int, step: int | Sequence[int] | None, episode: int | Sequence[int], num_rows: int | None
    ) -> Array:
        if step is None:
            raise ConfigError("a seed needs a step: action n of an episode is drawn with seed=..., step=n")
        noise, rows = self.interface.actions.noise, num_rows or 1
        steps, episodes = (np.atleast_1d(numbers).tolist() for numbers in (step, episode))
        for name, numbers, end in (("seed", [seed], 2**63), ("step", steps, 2**48), ("episode", episodes, 2**32)):
            if not all(isinstance(number, int) and 0 <= number < end for number in numbers):
                raise ConfigError(f"{name}={numbers} must be whole numbers from 0 to {end - 1}")
        if np.ndim(step) == 0 and np.ndim(episode) == 0:
            return noise.draw(seed, episodes[0], steps[0] * rows, rows, Purpose.EVALUATION_NOISE)
        if not {len(steps), len(episodes)} <= {1, rows}:
            raise ConfigError(f"{len(steps)} steps and {len(episodes)} episodes for {rows} observations; give one each")
        pairs = zip(np.broadcast_to(episodes, rows).tolist(), np.broadcast_to(steps, rows).tolist(), strict=True)
        return np.concatenate([noise.draw(seed, *pair, 1, Purpose.EVALUATION_NOISE) for pair in pairs])


def _policy_of(experiment: Experiment, interface: Interface, saved: SavedPolicy) -> Policy:
    policy = policy_for(experiment, interface)
    if policy.reward_scale is not None:
        policy.reward_scale = RewardScale(saved.num_columns(policy))
    return policy


def _at(observation: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        observation = observation[key]
    return observation


def _row_of(space: spaces.Space[Any], batch: Any, row: int) -> Any:
    """One observation of arrays that hold many."""
    if isinstance(space, spaces.Dict):
        return {key: _row_of(part, batch[key], row) for key, part in parts_of(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_row_of(part, batch[key], row) for key, part in parts_of(space))
    return batch[row]


@contextmanager
def _one_thread() -> Iterator[None]:
    """The last bits of a sum depend on how many threads share it."""
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
