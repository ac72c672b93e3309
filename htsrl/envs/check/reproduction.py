"""Whether the same seed and actions give the same episode: elsewhere, and again here; and what it may depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from htsrl.envs.check.calls import Call, first_difference
from htsrl.envs.check.examination import AFTER_AN_END, AFTER_OTHERS, OTHER_SEED, PLAYED, REPLAYED, SECOND
from htsrl.envs.check.findings import Finding
from htsrl.envs.check.job import Conditions
from htsrl.envs.check.process import Account
from htsrl.envs.check.timing import StepTimes, shown_seconds

HOME = Conditions(hash_seed=1, global_seed=1)
ELSEWHERE = Conditions(hash_seed=2, global_seed=2)

PlayUnder = Callable[[Conditions], Account]

HASHES = (
    "it depends on the hashes of strings (PYTHONHASHSEED): look for hash() and for loops over sets; "
    "use zlib.crc32, sorted(...) or a dict"
)
GLOBAL_RANDOMNESS = (
    "it draws from a global generator (random or numpy.random): draw from self.np_random, "
    "which super().reset(seed=seed) seeds"
)
OTHER_SOURCES = (
    "it depends on something that no seed decides: look for os.urandom, the time, id(), threads and unseeded "
    "generators; draw from self.np_random, which super().reset(seed=seed) seeds"
)


def other_process_findings(home: Account, play_under: PlayUnder) -> Iterator[Finding]:
    """Compare with a process in which hashes and global generators differ; where it does differ, find out why."""
    elsewhere = play_under(ELSEWHERE)
    calls = home.sections[PLAYED]
    if elsewhere.failure is not None:
        yield Finding("fail", "other process", f"what worked in one process failed in another {elsewhere.failure}")
    elif difference := first_difference(calls, elsewhere.sections[PLAYED]):
        text = f"the same seed and actions give another episode, first at {difference}; {_cause(calls, play_under)}"
        yield Finding("fail", "other process", text)
    else:
        yield Finding("ok", "other process", f"{len(calls):,} calls gave the same, to the bit, in a fresh interpreter")


def _cause(calls: Sequence[Call], play_under: PlayUnder) -> str:
    """Change one condition at a time."""
    if not _same(calls, play_under(HOME)):
        return OTHER_SOURCES
    same_hashes = Conditions(HOME.hash_seed, ELSEWHERE.global_seed)
    return HASHES if _same(calls, play_under(same_hashes)) else GLOBAL_RANDOMNESS


def _same(calls: Sequence[Call], account: Account) -> bool:
    return account.failure is None and first_difference(calls, account.sections[PLAYED]) is None


def same_process_findings(home: Account, saves_state: bool) -> Iterator[Finding]:
    """Compare episodes that one process played twice."""
    played = home.sections[PLAYED]
    if difference := first_difference(played, home.sections[SECOND]):
        text = (
            f"a second environment of the same process plays the same episode otherwise, first at {difference}; "
            "draw from self.np_random alone, and keep no state in the class or the module"
        )
        yield Finding("fail", "same process", text)
        return  # whether a reset forgets cannot be told where nothing can be repeated
    yield Finding("ok", "same process", "a second environment plays the first episode as the first one did")
    yield _reset_finding(home, saves_state)


def _reset_finding(home: Account, saves_state: bool) -> Finding:
    for section in (AFTER_OTHERS, AFTER_AN_END):
        if difference := first_difference(home.sections[PLAYED], home.sections.get(section, ())):
            what = f"{section}, the same seed and actions give another one, first at {difference}"
            if saves_state:
                way_out = "a saved state carries that along, but no seed repeats such an episode"
                return Finding("warn", "reset", f"{what}; {way_out}")
            return Finding("fail", "reset", f"{what}; state survives a reset: let reset set all that step changes")
    return Finding("ok", "reset", "after other episodes, a reset with the same seed begins the same one")


def seed_finding(home: Account) -> Finding:
    """Other seeds with the same actions should make other episodes."""
    played = home.sections[PLAYED]
    by_seed: dict[int, list[Call]] = {}
    for call in home.sections[OTHER_SEED]:
        by_seed.setdefault(call.episode, []).append(call)
    # A shorter episode is another one too, and then ends otherwise.
    if any(first_difference(played, calls) for calls in by_seed.values()):
        return Finding("ok", "seeds", "other seeds make other episodes")
    text = (
        f"{len(by_seed)} other seeds gave the same episode; right for a deterministic environment, else draw from "
        "self.np_random, which super().reset(seed=seed) seeds"
    )
    return Finding("warn", "seeds", text)


def replay_finding(home: Account, times: StepTimes) -> Finding:
    """What a worker that takes over an environment does where states cannot be saved."""
    replayed = home.sections[REPLAYED]
    episode = [call for call in home.sections[PLAYED] if call.episode == replayed[0].episode]
    if difference := first_difference(episode, replayed):
        text = (
            f"played again in a new environment, the episode is another, first at {difference}; a worker that takes "
            "over must be able to repeat it: let it depend on reset's seed and the actions since, or add save_state"
        )
        return Finding("fail", "state", text)
    steps, seconds = f"{times.long_episode_steps:,} steps", shown_seconds(times.replay_seconds)
    length = f"99 % of the episodes have at most {steps}" if times.any_ended else f"no episode ended within {steps}"
    text = f"no save_state, but an episode can be played again in a new environment; {length}, which take {seconds}"
    return Finding("ok", "state", text)
