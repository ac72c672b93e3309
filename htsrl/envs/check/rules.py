"""Gymnasium's rules, by its own checker; for a `Team`, the rules of teams."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from htsrl.config import Network
from htsrl.envs.check.findings import Finding
from htsrl.envs.contract import check_contract
from htsrl.envs.random_actions import mask_among
from htsrl.envs.random_play import random_play
from htsrl.envs.team import Team, team_size_of
from htsrl.errors import ConfigError, RuleBroken
from htsrl.policies.choice import choices_for
from htsrl.spaces import Interface, action_layout, observation_leaves

TEAM_STEPS = 200
MASKED_STEPS = 500
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
IS_WRAPPED = "different from the unwrapped version"  # as htsrl.envs.make makes everything, and trains on it
SHARES_MEMORY = "share an object"


def contract_findings(make: Callable[[], gymnasium.Env[Any, Any]]) -> Iterator[Finding]:
    """What is wrong with the environment's spaces, and with what it returns in its first steps."""
    with closing(make()) as env:
        findings = list(_space_findings(env))
        if all(finding.level != "fail" for finding in findings):
            findings += _interface_findings(env)
        yield from findings
        spaces_are_supported = all(finding.level != "fail" for finding in findings)
        is_team = isinstance(env.unwrapped, Team)
    if is_team and spaces_are_supported:
        with closing(make()) as env:
            yield _team_finding(env)
    elif not is_team:
        with closing(make()) as env:
            yield from _quick_look(env)
        with closing(make()) as env:
            masks = list(_mask_findings(env))
            yield from masks
        if not masks:  # Gymnasium's checker would play what they forbid
            with closing(make()) as env:
                yield from _gymnasium_findings(env)


def _space_findings(env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    for name, understand in (("observation_space", observation_leaves), ("action_space", action_layout)):
        try:
            space = getattr(env, name)
            understand(space)
            yield Finding("ok", "spaces", f"{name} {_short(space)} is supported")
        except ConfigError as error:
            yield Finding("fail", "spaces", str(error))
        except Exception as error:
            yield Finding("fail", "spaces", f"{name} raised {type(error).__name__}: {error}; set it in __init__")


def _interface_findings(env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    """Whether the spaces go together: an action mask must fit the actions."""
    try:
        interface = Interface(env.observation_space, env.action_space)
    except ConfigError as error:
        yield Finding("fail", "spaces", str(error))
        return
    for choice in choices_for(interface.observations, Network()):
        yield Finding("ok", "network", choice)


def _quick_look(env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    """The look that `htsrl train` takes before it starts; its messages say more than a checker's assertions."""
    try:
        check_contract(env)
    except ConfigError as error:
        yield Finding("fail", "contract", str(error))


def _mask_findings(env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    """Play for a while, with actions that are allowed, where there are masks."""
    at = ""
    try:
        if mask_among(env, *env.reset(seed=0)) is None:
            return
        for at in random_play(env, MASKED_STEPS):  # noqa: B007
            pass
        yield Finding("ok", "masks", f"an action mask allows something in each of {MASKED_STEPS} random steps")
    except RuleBroken as error:
        yield Finding("fail", "masks", f"{at}: {error}")
    except (Exception, SystemExit):
        pass  # what else goes wrong is found when it is played


def _gymnasium_findings(env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    failure: BaseException | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except (Exception, SystemExit) as error:
            failure = error
    texts = dict.fromkeys(COLOUR_CODES.sub("", str(warning.message)).removeprefix("WARN: ") for warning in caught)
    complaints = [text for text in texts if IS_WRAPPED not in text]
    for text in complaints:
        yield Finding("warn", "contract", f"Gymnasium's checker says: {text}")
    if failure is None:
        if not complaints:
            yield Finding("ok", "contract", "Gymnasium's checker has nothing to say")
    elif SHARES_MEMORY in str(failure):
        text = f"Gymnasium's checker says: {failure} (htsrl copies observations at once, so training is right)"
        yield Finding("warn", "contract", text)
    else:
        text = f"Gymnasium's checker says: {type(failure).__name__}: {failure}; mend the environment"
        yield Finding("fail", "contract", text)


def _team_finding(env: gymnasium.Env[Any, Any]) -> Finding:
    """Play for a while as training would, whose checks of a team raise."""
    at = ""
    try:
        for at in random_play(env, TEAM_STEPS):  # noqa: B007
            pass
    except (Exception, SystemExit) as error:
        what = str(error) if isinstance(error, RuleBroken) else f"{type(error).__name__}: {error}"
        return Finding("fail", "contract", f"team, {at}: {what}; see htsrl.envs.team.Team")
    return Finding("ok", "contract", f"a team of {team_size_of(env)}: a row per agent in all that comes and goes")


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return f"{text[:57]}..." if len(text) > 60 else text
