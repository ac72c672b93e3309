"""A first look at a command line, before its defaults are known: what is a word, what a flag, and whose it is.

Which flags there are, and which of them take values, follows from the dataclasses that declare them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import tyro

from htsrl.config.old_names import OF_NETWORK, note_old_name
from htsrl.errors import ConfigError

HELP_FLAGS = frozenset({"-h", "--help", "--help-all"})
NAMES_ELSEWHERE = {
    "--lr": "--learning-rate",
    "--gamma": "--discount",
    "--ent-coef": "--entropy-coefficient",
    "--vf-coef": "--value-coefficient",
    "--clip-coef": "--clip-range",
    "--clip-range-vf": "--value-clip-range",
    "--max-grad-norm": "--max-gradient-norm",
    "--total-timesteps": "--total-steps",
    "--timesteps": "--total-steps",
    "--n-envs": "--num-envs",
    "--num-workers": "--num-executors",
    "--n-steps": "--sync-interval",
    "--num-steps": "--sync-interval",
    "--rollout-length": "--sync-interval",
    "--n-epochs": "--epochs",
    "--update-epochs": "--epochs",
    "--anneal-lr": "--anneal-learning-rate",
    "--norm-adv": "--normalize-advantages",
    "--normalize-advantage": "--normalize-advantages",
    "--normalize-reward": "--normalize-rewards",
    "--batch-size": "--num-minibatches, which says how many there are, not how large they are",
    "--minibatch-size": "--num-minibatches, which says how many there are, not how large they are",
    "--net-arch": "--hidden-sizes",
    "--log-dir": "--run-dir",
    "--tensorboard-log": "--run-dir",
    "--cuda": "--device cuda",
    "--algorithm": "--algo",
    "--env": "ENV_ID, without a flag",
    "--env-id": "ENV_ID, without a flag",
    "--eval-freq": "--eval-every",
    "--n-eval-episodes": "--eval-episodes",
    "--track": "--sink wandb",
    "--exp-name": "--run-dir",
    "--capture-video": "--video-every",
}
"""Flags of Stable-Baselines3, CleanRL and others."""
NAMES_WITH_REPLAY = {
    "--batch-size": "--minibatch-size",
    "--buffer-size": "--replay-capacity",
    "--tau": "--follow-rate",
    "--gradient-steps": "--update-to-data",
    "--train-freq": "--update-to-data",
    "--train-frequency": "--update-to-data",
    "--policy-lr": "--learning-rate",
    "--q-lr": "--learning-rate",
    "--target-update-interval": "--target-period",
    "--target-network-frequency": "--target-period",
    "--exploration-initial-eps": "--initial-epsilon",
    "--exploration-final-eps": "--final-epsilon",
    "--start-e": "--initial-epsilon",
    "--end-e": "--final-epsilon",
    "--target-policy-noise": "--target-noise",
}
"""Of algorithms that learn from a replay buffer."""


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


OLD_FLAGS = {_flag(old): _flag(new) for old, new in OF_NETWORK.items()}


class Flags:
    """The flags that dataclasses declare, with those of the sections inside them."""

    def __init__(self, *declared: Any) -> None:
        hints = dict(hint for cls in declared for hint in _hints(cls))
        self.names = {_flag(name) for name in hints}
        self._switches = {_flag(name) for name, hint in hints.items() if hint is bool}
        self._lists = {_flag(name) for name, hint in hints.items() if typing.get_origin(hint) is tuple}

    def words(self, arguments: Sequence[str]) -> list[str]:
        """The arguments that are neither flags nor the values of flags."""
        words, follows = [], ""
        for argument in arguments:
            if argument.startswith("-"):
                follows = self._follows(argument)
                continue
            if not follows:
                words.append(argument)
            follows = follows if follows == "values" else ""
        return words

    def given(self, arguments: Sequence[str]) -> set[str]:
        """The settings that the arguments give a value, as fields are called."""
        names = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
        return {self._plain(name).removeprefix("--").replace("-", "_") for name in names}

    def _follows(self, argument: str) -> str:
        name = self._plain(argument)
        if "=" in argument or name in self._switches or name in HELP_FLAGS:
            return ""
        return "values" if name in self._lists else "value"

    def _plain(self, argument: str) -> str:
        name = argument.replace("_", "-")
        positive = "--" + name.removeprefix("--no-")
        return positive if name.startswith("--no-") and positive in self._switches else name


def with_new_names(arguments: Sequence[str], flags: Flags) -> list[str]:
    """The arguments with today's flags in place of old ones, unless an algorithm has a flag of that name."""
    return [_with_new_name(argument, flags) for argument in arguments]


def _with_new_name(argument: str, flags: Flags) -> str:
    name, equals, value = argument.partition("=")
    name = name.replace("_", "-")
    if name not in OLD_FLAGS or name in flags.names:
        return argument
    note_old_name("the command line", name, OLD_FLAGS[name])
    return OLD_FLAGS[name] + equals + value


def refuse_names_from_elsewhere(arguments: Sequence[str], flags: Flags, others: dict[str, Flags], algo: str) -> None:
    """Answer a flag of another library, or of another algorithm, with what it is called here, or whose it is."""
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if not name.startswith("--") or name in flags.names:
            continue
        of_replay = NAMES_WITH_REPLAY.get(name, "")
        if of_replay in flags.names or (of_replay and name not in NAMES_ELSEWHERE):
            raise ConfigError(f"{name} is {of_replay} here")
        if name in NAMES_ELSEWHERE:
            raise ConfigError(f"{name} is {NAMES_ELSEWHERE[name]} here")
        for other, theirs in others.items():
            if name in theirs.names:
                raise ConfigError(f"{name} is a setting of {other}, and the algorithm is {algo}; use --algo {other}")


def whole_numbers() -> tyro.constructors.ConstructorRegistry:
    """Lets 1e6 and 1_000_000 be whole numbers."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def _rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: _whole_number(words[0]),
            is_instance=lambda x: isinstance(x, int) and not isinstance(x, bool),
            str_from_instance=lambda x: [str(x)],
        )

    return registry


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise ValueError(f"{text} is not a whole number") from None
        return int(number)


def _hints(cls: Any) -> Iterator[tuple[str, Any]]:
    """Field names, or the names of their flags, and their types without what is said about them."""
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        if name not in {field.name for field in dataclasses.fields(cls)}:
            continue
        notes = hint.__metadata__ if typing.get_origin(hint) is typing.Annotated else ()
        names = [given for note in notes if (given := getattr(note, "name", None)) and isinstance(given, str)]
        plain = hint.__origin__ if notes else hint
        if dataclasses.is_dataclass(plain):
            yield from _hints(plain)
        elif tyro.conf.UseAppendAction in notes:
            yield (names[0] if names else name), str  # one value each time it is given
        elif tyro.conf.Suppress not in notes:  # the parser does not know those
            yield (names[0] if names else name), plain
