"""CPU time of an Atari step: ours, Gymnasium's wrappers, ale-py's native vector environment and the bare emulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from htsrl.envs.atari import NOOP, Atari, Emulator
from htsrl.envs.make import make_env
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.record import Summary, Table

OURS = "htsrl"
IN_PLACE = "htsrl, into a storage"
WRAPPERS = "Gymnasium's wrappers"
GREY_WRAPPERS = "Gymnasium's wrappers, grey screen"
NATIVE = "ale-py's vector of 1"
NATIVE_VECTOR = "ale-py's vector of 8"
FLOOR = "emulator alone"
GOALS = {WRAPPERS: 1.2, NATIVE: 1.0, NATIVE_VECTOR: 1.0}
"""What another one takes must be at least so many times what we take."""

VECTOR_SIZE = 8
FRAME_SKIP = 4

Player = Callable[[Sequence[int]], None]
"""Takes a step for each action, and resets where an episode ends."""


@dataclass(frozen=True)
class AtariStepBench:
    """How much is measured."""

    games: tuple[str, ...]
    """Ids of ale-py's."""
    steps: int
    """Of each contender in each repetition."""
    repetitions: int

    def __post_init__(self) -> None:
        if not self.games:
            raise ConfigError("games is empty; give one or more, such as ALE/Pong-v5")
        for game in self.games:
            if not game.startswith("ALE/"):
                raise ConfigError(f"game {game!r} is not one of ale-py's; name it as ale-py does, such as ALE/Pong-v5")
        if self.repetitions < 1:
            raise ConfigError(f"repetitions={self.repetitions} must be at least 1")
        if self.steps < 1 or self.steps % VECTOR_SIZE:
            raise ConfigError(f"steps={self.steps} must be a multiple of {VECTOR_SIZE}, which share them in the vector")


@dataclass(frozen=True)
class Measured:
    """CPU microseconds per step in one game, of every contender in every repetition."""

    game: str
    microseconds: Mapping[str, Sequence[float]]

    def times_ours(self, name: str) -> Summary:
        """What `name` takes over what we take, in pairs that ran in the same repetition."""
        pairs = zip(self.microseconds[name], self.microseconds[OURS], strict=True)
        return Summary.of([theirs / ours for theirs, ours in pairs])

    def meets_goal(self, name: str) -> bool:
        return self.times_ours(name).median >= GOALS[name]

    def document(self) -> dict[str, Any]:
        return {
            name: {
                "microseconds": asdict(Summary.of(values)),
                "times_ours": asdict(self.times_ours(name)),
                **({"goal": GOALS[name], "met": self.meets_goal(name)} if name in GOALS else {}),
            }
            for name, values in self.microseconds.items()
        }


def measure(bench: AtariStepBench) -> list[Measured]:
    """All games, one after the other."""
    announcer, measured = Announcer(len(bench.games)), []
    for game in bench.games:
        announcer.begin(game)
        measured.append(_measure_game(game, bench))
        announcer.end(", ".join(f"{name} {measured[-1].times_ours(name).median:.2f} x ours" for name in GOALS))
    return measured


def _measure_game(game: str, bench: AtariStepBench) -> Measured:
    """All contenders take the same random steps in each repetition, one contender after the other.

    Read is the CPU time of the process with all its threads: what others do to the machine shows little, what a
    contender does in a thread of its own shows in full. The first repetition warms up and is not counted.
    """
    num_actions, contenders = _contenders(game)
    rng = np.random.default_rng(0)
    microseconds: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(bench.repetitions + 1):
        actions = list(map(int, rng.integers(num_actions, size=bench.steps)))
        for name, play in contenders.items():
            begin = time.process_time_ns()
            play(actions)
            used = time.process_time_ns() - begin
            if repetition:
                microseconds[name].append(used / bench.steps / 1000)
    return Measured(game, microseconds)


def _contenders(game: str) -> tuple[int, dict[str, Player]]:
    """All with one no-op at the start, raw rewards, whole games and no sticky actions."""
    ours, in_place = _ours(game), _ours(game)
    assert isinstance(ours.action_space, gymnasium.spaces.Discrete)
    assert ours.spec is not None
    rom = ours.spec.kwargs["game"]
    contenders = {
        OURS: _player(ours),
        IN_PLACE: _player_in_place(in_place),
        WRAPPERS: _player(_wrapped(game)),
        GREY_WRAPPERS: _player(_wrapped(game, obs_type="grayscale")),
        NATIVE: _native_player(rom, num_envs=1),
        NATIVE_VECTOR: _native_player(rom, num_envs=VECTOR_SIZE),
        FLOOR: _emulator_player(rom),
    }
    return int(ours.action_space.n), contenders


def _ours(game: str) -> Atari:
    options = {"noop_max": 1, "fire_on_reset": False, "episodic_life": False, "clip_rewards": False}
    made = make_env(game, options, imports=())
    assert isinstance(made, Atari), f"{game} is a {type(made).__name__}"
    return made


def _wrapped(game: str, **raw_args: Any) -> gymnasium.Env[Any, Any]:
    raw = gymnasium.make(game, frameskip=1, repeat_action_probability=0.0, disable_env_checker=True, **raw_args)
    return FrameStackObservation(AtariPreprocessing(raw, noop_max=1, frame_skip=FRAME_SKIP), 4)


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


def _native_player(rom: str, num_envs: int) -> Player:
    """It resets by itself, in a step that takes no action; several environments share the actions."""
    import ale_py

    env = ale_py.AtariVectorEnv(
        rom, num_envs, num_threads=1, frameskip=FRAME_SKIP, noop_max=1, use_fire_reset=False, reward_clipping=False
    )
    env.reset(seed=0)

    def play(actions: Sequence[int]) -> None:
        for row in np.array(actions).reshape(-1, num_envs):
            env.step(row)

    return play


def _emulator_player(rom: str) -> Player:
    """The least that a step can take: no picture is looked at."""
    emulator = Emulator(rom, max_frames=None)
    emulator.begin_game()
    emulator.emulate_frame(NOOP)

    def play(actions: Sequence[int]) -> None:
        for action in actions:
            for _ in range(FRAME_SKIP):
                emulator.emulate_frame(emulator.minimal_actions[action])
            if emulator.is_over():
                emulator.begin_game()
                emulator.emulate_frame(NOOP)

    return play


def table(measured: Sequence[Measured]) -> Table:
    headings = ["game", "environment", "CPU us per step", "times ours", "goal"]
    rows = [
        [of.game, name, f"{Summary.of(values)}", _ratio(of.times_ours(name)), _verdict(of, name)]
        for of in measured
        for name, values in of.microseconds.items()
    ]
    return Table(headings, rows, _notes(len(measured[0].microseconds[OURS])))


def _ratio(summary: Summary) -> str:
    return f"{summary.median:.2f} ({summary.lowest:.2f} to {summary.highest:.2f})"


def _verdict(measured: Measured, name: str) -> str:
    if name not in GOALS:
        return ""
    return f"{GOALS[name]:.1f} {'met' if measured.meets_goal(name) else 'missed'}"


def _notes(repetitions: int) -> list[str]:
    return [
        f"CPU time of the process, all threads; median (lowest to highest) of {repetitions} repetitions in which the "
        "environments took turns with the same random actions. Ratios are taken within a repetition. A goal is the "
        "least that the median ratio should be.",
        f"All: frame skip {FRAME_SKIP}, maximum of two frames, 84x84 grey, stack of 4, whole games, resets included. "
        f"Gymnasium's are AtariPreprocessing and FrameStackObservation; with a grey screen the game below them does "
        f"not make a colour picture that nobody looks at. ale-py's vector has one thread; the one of {VECTOR_SIZE} "
        f"takes {VECTOR_SIZE} steps at a time, as many in all. The emulator alone plays the same frames unseen.",
    ]


def simulator_versions() -> dict[str, str]:
    """Of what the numbers depend on here and in no other benchmark."""
    import ale_py
    import cv2

    return {"ale-py": ale_py.__version__, "opencv": cv2.__version__}
