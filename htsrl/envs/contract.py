"""One quick look, before anything starts, at whether an environment keeps Gymnasium's contract."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from htsrl.config import Network
from htsrl.envs.look import interface_of
from htsrl.envs.random_actions import RandomActions, mask_among
from htsrl.envs.random_play import random_play
from htsrl.envs.team import Info, Team
from htsrl.errors import ConfigError, RuleBroken

CHECKED_STEPS = 5
Outcome = tuple[Any, Info]
OLD_API = (
    "that is the old Gym's API: let reset return (obs, info) and step return (obs, reward, terminated, truncated, "
    "info), or convert the environment with the package shimmy"
)


def check_contract(env: gymnasium.Env[Any, Any]) -> None:
    """Raise ConfigError for the first thing that `env` returns, or raises, against Gymnasium's rules."""
    name = _name(env)
    observation_space, _ = _space(name, env, "observation_space"), _space(name, env, "action_space")
    if isinstance(env.unwrapped, Team):
        _check_as_played(name, env)
        return
    actions = RandomActions(env, seed=0)
    seen = _check_reset(name, env, observation_space, seed=0)
    if mask_among(env, *seen) is not None:
        interface_of(env, Network())  # whether there is anything to mask
        seen = _check_reset(name, env, observation_space, seed=0)
    for step in range(CHECKED_STEPS):
        with _blaming(name, "reading its action mask"):
            action = actions.draw(mask_among(env, *seen))
        seen, over = _check_step(name, env, action, observation_space)
        if over:
            seen = _check_reset(name, env, observation_space, seed=step + 1)
    if mask_among(env, *seen) is not None:
        _check_as_played(name, env)


def _check_as_played(name: str, env: gymnasium.Env[Any, Any]) -> None:
    """A few steps as in a run, which checks a row per agent of everything, and masks."""
    call = ""
    try:
        for call in random_play(env, CHECKED_STEPS):  # noqa: B007
            pass
    except ConfigError:
        raise
    except Exception as error:
        raise _blame(name, call, error) from error


def _name(env: gymnasium.Env[Any, Any]) -> str:
    spec = env.unwrapped.spec
    return spec.id if spec is not None else type(env.unwrapped).__name__


def _space(name: str, env: gymnasium.Env[Any, Any], attribute: str) -> spaces.Space[Any]:
    with _blaming(name, attribute):
        space = getattr(env, attribute)
    _require(
        isinstance(space, spaces.Space),
        f"{name}: {attribute} is a {type(space).__module__}.{type(space).__qualname__}, not a Gymnasium space; "
        "set it to one from gymnasium.spaces",
    )
    return space  # type: ignore[no-any-return]


def _check_reset(name: str, env: gymnasium.Env[Any, Any], space: spaces.Space[Any], seed: int) -> Outcome:
    call = f"reset(seed={seed})"
    with _blaming(name, call):
        result: Any = env.reset(seed=seed)
    _require(
        isinstance(result, tuple) and not _is_bare_observation(result, space),
        f"{name}: {call} returned {_shown(result)} alone, not (obs, info); {OLD_API}",
    )
    _require(len(result) == 2, f"{name}: {call} returned {len(result)} values; return the 2 of (obs, info)")
    observation, info = result
    _check_observation(name, call, observation, space)
    _check_info(name, call, info)
    return observation, info


def _check_step(name: str, env: gymnasium.Env[Any, Any], action: Any, space: spaces.Space[Any]) -> tuple[Outcome, bool]:
    """What was seen, and whether the step ended the episode."""
    call = f"step({_short(action)})"
    with _blaming(name, call):
        result: Any = env.step(action)
    rule = "return the 5 of (obs, reward, terminated, truncated, info)"
    _require(isinstance(result, tuple), f"{name}: {call} returned {_shown(result)}, not a tuple; {rule}")
    _require(len(result) != 4, f"{name}: {call} returned 4 values, (obs, reward, done, info); {OLD_API}")
    _require(len(result) == 5, f"{name}: {call} returned {len(result)} values; {rule}")
    observation, reward, terminated, truncated, info = result
    _check_observation(name, call, observation, space)
    _check_reward(name, call, reward)
    for flag, value in (("terminated", terminated), ("truncated", truncated)):
        _require(
            isinstance(value, bool | np.bool_),
            f"{name}: {call} returned {flag}={_shown(value)}, which must be True or False; return bool(...)",
        )
    _check_info(name, call, info)
    return (observation, info), bool(terminated or truncated)


def _check_observation(name: str, call: str, observation: Any, space: spaces.Space[Any]) -> None:
    with _blaming(name, f"comparing the observation of {call} with {space}"):
        mismatch = _mismatch(space, observation, "obs")
    _require(mismatch is None, f"{name}: {call} returned an observation outside observation_space: {mismatch}")


def _check_reward(name: str, call: str, reward: Any) -> None:
    _require(
        isinstance(reward, int | float | np.integer | np.floating | np.bool_),
        f"{name}: {call} returned reward={_shown(reward)}, which must be one number; return float(...), "
        "or wrap the environment with gymnasium.wrappers.TransformReward",
    )
    _require(
        _is_finite(reward),
        f"{name}: {call} returned reward={reward}, which must be finite; no gradient survives it, "
        "so look for a division by zero or a missing bound",
    )


def _is_finite(reward: Any) -> bool:
    try:
        return math.isfinite(reward)
    except OverflowError:  # an integer beyond every float
        return False


def _check_info(name: str, call: str, info: Any) -> None:
    _require(
        isinstance(info, dict),
        f"{name}: {call} returned info={_shown(info)}, which must be a dict; return {{}} at least",
    )


def _mismatch(space: spaces.Space[Any], value: Any, at: str) -> str | None:
    """Where and how `value` differs from `space`; None if it does not."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            return f"{at} is {_shown(value)}; return a dict with the keys {', '.join(map(repr, space.spaces))}"
        return _first(_mismatch(part, value[key], f"{at}[{key!r}]") for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return f"{at} is {_shown(value)}; return a tuple of {len(space.spaces)}"
        return _first(_mismatch(part, value[i], f"{at}[{i}]") for i, part in enumerate(space.spaces))
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _array_mismatch(space, value, at)
    return None if space.contains(value) else f"{at} is {_shown(value)}, not in {space}; correct one of the two"


def _array_mismatch(space: spaces.Space[Any], value: Any, at: str) -> str | None:
    if not isinstance(value, np.ndarray | np.generic):
        return f"{at} is a {type(value).__name__}, not an array; return np.array(..., dtype=np.{space.dtype})"
    if value.dtype != space.dtype:
        return (
            f"{at} has dtype {value.dtype}, the space has {space.dtype}; "
            f"return obs.astype(np.{space.dtype}) or declare the space with dtype=np.{value.dtype}"
        )
    if value.shape != space.shape:
        return f"{at} has shape {value.shape}, the space has {space.shape}; correct one of the two"
    if isinstance(space, spaces.Box):
        return _bounds_mismatch(space, np.asarray(value), at)
    return None if space.contains(value) else f"{at} is {_shown(value)}, not in {space}; correct one of the two"


def _bounds_mismatch(space: spaces.Box, value: np.ndarray[Any, Any], at: str) -> str | None:
    """The rule of a run: what is not finite is refused at every step. Bounds are for those who scale observations by
    them, which htsrl does not: outside is a warning here, and counted by `htsrl check-env`."""
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
        return f"{_at(at, place)} is {value[place]}, which is not finite; look for a division by zero"
    outside = ~((value >= space.low) & (value <= space.high))
    if outside.any():
        place = tuple(int(i) for i in np.argwhere(outside)[0])
        warnings.warn(
            f"an observation is outside observation_space: {_at(at, place)} is {value[place]}, the space allows "
            f"{space.low[place]} to {space.high[place]}; training takes it as it is, `htsrl check-env` counts them",
            stacklevel=2,
        )
    return None


def _at(name: str, place: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def _is_bare_observation(result: Any, space: spaces.Space[Any]) -> bool:
    """A Tuple observation of the old API is a tuple as well."""
    return isinstance(space, spaces.Tuple) and space.contains(result)


@contextmanager
def _blaming(name: str, call: str) -> Iterator[None]:
    """Whatever the environment raises is the user's to mend."""
    try:
        yield
    except Exception as error:
        raise _blame(name, call, error) from error


def _blame(name: str, call: str, error: Exception) -> ConfigError:
    if isinstance(error, RuleBroken):
        return ConfigError(f"{name}: in {call}, {error}")
    return ConfigError(f"{name}: {call} raised {type(error).__name__}: {error}; {_way_out(error)}")


def _way_out(error: Exception) -> str:
    text = str(error)
    # Gymnasium's wrappers unpack what the environment returns, and so fail on the old API before we see it.
    if "unpack (expected 5, got 4" in text or "unpack (expected 2" in text:
        return f"it seems to return 4 values from step, or a bare observation from reset; {OLD_API}"
    if isinstance(error, TypeError) and ("'seed'" in text or "'options'" in text):
        return "let it be reset(self, *, seed=None, options=None), or convert an environment of the old Gym with shimmy"
    return "reset(seed=...) and step(action), with any action that is allowed, must work; mend the environment"


def _first(mismatches: Iterator[str | None]) -> str | None:
    return next((mismatch for mismatch in mismatches if mismatch is not None), None)


def _shown(value: Any) -> str:
    return f"{_short(repr(value))} ({type(value).__name__})"


def _short(value: Any) -> str:
    """As much of the value as helps, on one line."""
    text = " ".join(str(value).split())
    return f"{text[:57]}..." if len(text) > 60 else text


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
