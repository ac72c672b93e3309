"""CPU time of an Atari step: ours, Gymnasium's wrappers and ale-py's native vector environment, taking turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from htsrl.bench.announcer import Announcer
from htsrl.bench.provenance import Provenance
from htsrl.bench.record import Record, Summary, Table, write_record
from htsrl.envs.atari import Atari

OURS = "htsrl"
IN_PLACE = "htsrl, into a storage"
WRAPPERS = "Gymnasium's wrappers"
GREY_WRAPPERS = "Gymnasium's wrappers over a grey screen"
NATIVE = "ale-py's vector environment"
IDS = {"pong": "ALE/Pong-v5", "breakout": "ALE/Breakout-v5"}

Player = Callable[[Sequence[int]], None]
"""Takes a step for each action, and resets where an episode ends."""


@dataclass(frozen=True)
class Measured:
    """CPU microseconds per step in one game, of every contender in every repetition."""

    game: str
    microseconds: Mapping[str, Sequence[float]]

    def times_ours(self, name: str) -> float:
        """What `name` takes over what we take: the median over pairs that ran one after the other."""
        pairs = zip(self.microseconds[name], self.microseconds[OURS], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)


def measure(game: str, steps: int = 250, repetitions: int = 20) -> Measured:
    """All contenders take the same random `steps` in each repetition, one contender after the other.

    Read is the CPU time of the process with all its threads: what others do to the machine shows little, what a
    contender does in a thread of its own shows in full. The first repetition warms up and is not counted.
    """
    num_actions, contenders = _contenders(game)
    rng = np.random.default_rng(0)
    microseconds: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(repetitions + 1):
        actions = list(map(int, rng.integers(num_actions, size=steps)))
        for name, play in contenders.items():
            begin = time.process_time_ns()
            play(actions)
            used = time.process_time_ns() - begin
            if repetition:
                microseconds[name].append(used / steps / 1000)
    return Measured(game, microseconds)


def _contenders(game: str) -> tuple[int, dict[str, Player]]:
    """All with one no-op at the start, raw rewards, whole games and no sticky actions."""
    ours, in_place = (
        Atari(game, noop_max=1, fire_on_reset=False, episodic_life=False, clip_rewards=False) for _ in range(2)
    )
    assert isinstance(ours.action_space, gymnasium.spaces.Discrete)
    contenders = {
        OURS: _player(ours),
        IN_PLACE: _player_in_place(in_place),
        WRAPPERS: _player(_wrapped(game)),
        GREY_WRAPPERS: _player(_wrapped(game, obs_type="grayscale")),
        NATIVE: _native_player(game),
    }
    return int(ours.action_space.n), contenders


def _wrapped(game: str, **raw_args: Any) -> gymnasium.Env[Any, Any]:
    raw = gymnasium.make(IDS[game], frameskip=1, repeat_action_probability=0.0, disable_env_checker=True, **raw_args)
    return FrameStackObservation(AtariPreprocessing(raw, noop_max=1), 4)


def _player(env: gymnasium.Env[Any, Any]) -> Player:
    env.reset(seed=0)

    def play(actions: Sequence[int]) -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return play


def _player_in_place(env: Atari) -> Player:
    storage = np.zeros((64, *(env.observation_space.shape or ())), np.uint8)
    env.reset_into(storage[0], seed=0)

    def play(actions: Sequence[int]) -> None:
        for step, action in enumerate(actions):
            row = storage[step % len(storage)]
            _, terminated, truncated, _ = env.step_into(action, row)
            if terminated or truncated:
                env.reset_into(row)

    return play


def _native_player(game: str) -> Player:
    """It resets by itself, in a step that takes no action."""
    import ale_py

    env = ale_py.AtariVectorEnv(
        game, num_envs=1, num_threads=1, noop_max=1, use_fire_reset=False, reward_clipping=False
    )
    env.reset(seed=0)

    def play(actions: Sequence[int]) -> None:
        for action in actions:
            env.step(np.array([action]))

    return play


def table(measured: Sequence[Measured]) -> Table:
    headings = ["game", "environment", "CPU us per step", "over ours"]
    rows = [
        [of.game, name, f"{Summary.of(values)}", f"{of.times_ours(name):.2f}"]
        for of in measured
        for name, values in of.microseconds.items()
    ]
    repetitions = len(measured[0].microseconds[OURS])
    note = (
        f"CPU time of the process, all threads; median (lowest to highest) of {repetitions} repetitions in which the "
        "environments took turns with the same random actions. The last column is the median of the ratios within a "
        "repetition."
    )
    return Table(headings, rows, [note])


def main(steps: int = 250, repetitions: int = 20, output: Path | None = None) -> None:
    """Measure Pong and Breakout, print the table and, where an output folder is given, write the record there."""
    provenance = Provenance.take()
    announcer, measured = Announcer(len(IDS)), []
    for game in IDS:
        announcer.begin(game)
        measured.append(measure(game, steps, repetitions))
        announcer.end(", ".join(f"{name} {measured[-1].times_ours(name):.2f}" for name in (WRAPPERS, NATIVE)))
    print(table(measured).markdown())
    if output is not None:
        record = Record(
            name="atari-step",
            command=f"python -m htsrl.bench.atari_step --steps {steps} --repetitions {repetitions}",
            provenance=provenance,
            configs={},
            repetitions=[asdict(of) for of in measured],
            summary={of.game: {name: of.times_ours(name) for name in of.microseconds} for of in measured},
            tables=[table(measured)],
        )
        print(f"record    {write_record(record, output)}")


if __name__ == "__main__":
    tyro.cli(main)
