"""`htsrl.replay`: a stretch of a run again, to the bit, and checked against the run's digest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from htsrl.checkpoint.files import Checkpoint
from htsrl.config import Config, EnvFactory
from htsrl.config.check import check
from htsrl.digest import Link, read_links
from htsrl.envs.rendering import make_rendering_env
from htsrl.errors import ConfigError, MomentNotFound
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.numerics import single_threaded
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.collector import check_has_envs
from htsrl.processes.current_folder import current_folder_kept
from htsrl.replay.conditions import Condition
from htsrl.replay.film import Film
from htsrl.replay.origin import Origin, find_origin, rollouts_made
from htsrl.replay.rebuild import Rebuild, blueprint_of, rebuilt_config
from htsrl.replay.search import Found, Search, SearchCondition, SearchEpisode, SearchUpdates
from htsrl.replay.stretch import Replay, joined
from htsrl.replay.verification import Verification, Verifier
from htsrl.runs.folder import RunFolder
from htsrl.runs.trust import Vouched, admitted_config

Watch = Callable[[int, int], None]
"""Is told which update has been made again, and how many the run has."""


def replay(
    run_dir: Path | str,
    update: int | None = None,
    env: int | None = None,
    *,
    until: str | None = None,
    episode: int | None = None,
    frames: bool = False,
    from_start: bool = False,
    allow_different_numerics: bool = False,
    env_id: str | EnvFactory | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
    watch: Watch | None = None,
) -> Replay:
    """Rebuild a stretch of the trajectory of environment `env`, without touching the run's folder.

    `update` is the one that learned from it. `until` finds the first moment, from that update on, at which a condition
    holds (`nan`, `return>300`, `reward<0`, a metric by name); without `env`, in any environment. `episode` is the
    number of a whole episode of `env`. `frames` asks for what the environment draws.

    The nearest checkpoint before it is gone on from, unless `from_start`. ConfigError where code, machine or libraries
    are not those of the run, unless that is allowed. `Replay.is_verified` says whether the digest is the run's.
    `env_id` takes the place of the folder's environment; docs/security.md tells of it, `imports` and `trust`.
    """
    _check_asked(update, env, until, episode)
    folder = RunFolder.existing(Path(run_dir))
    links = read_links(folder.path)
    with current_folder_kept(), single_threaded():
        vouched = Vouched(imports=tuple(imports), everything=trust)
        config = check(rebuilt_config(admitted_config(folder.config_file, env_id, vouched), folder))
        check_has_envs(config.experiment.env, folder.shown)
        if config.experiment.source is not None:
            raise ConfigError(
                f"{folder.shown} learned from a dataset, so there is no trajectory to rebuild; look into the dataset "
                f"itself: {config.experiment.source}"
            )
        past = Past(folder, config, links, from_start, watch)
        past.check_asked(update, env)
        blueprint, changes = blueprint_of(config, folder, allow_different_numerics)
        found, verification = past.find(blueprint, _search(blueprint, update, env, until, episode))
        rebuilt = Replay(
            folder.shown,
            found.env,
            joined(found.pieces, found.rows),
            replace(verification, other_numerics=tuple(changes)),
            blueprint.interface,
            blueprint.trajectory.is_team,
            found.moment,
        )
        return past.with_frames(rebuilt, blueprint, found) if frames else rebuilt


def _check_asked(update: int | None, env: int | None, until: str | None, episode: int | None) -> None:
    if until is not None and episode is not None:
        raise ConfigError(f"until={until!r} and episode={episode} look for two things; ask for one of them")
    if update is not None and episode is not None:
        raise ConfigError(f"update={update} and episode={episode} are two stretches; ask for one of them")
    if until is None and episode is None and update is None:
        raise ConfigError("say what to rebuild: update and env, until, or episode and env")
    if until is None and env is None:
        raise ConfigError("say of which environment with env: the stretch of an update, or an episode, is of one")
    for name, number in (("update", update), ("env", env), ("episode", episode)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise ConfigError(f"{name}={number} must be a whole number from 0 on")
    if until is not None:
        Condition.parse(until)


def _search(
    blueprint: Blueprint, update: int | None, env: int | None, until: str | None, episode: int | None
) -> Search:
    if until is not None:
        return SearchCondition(blueprint, Condition.parse(until), update or 0, env)
    assert env is not None
    if episode is not None:
        return SearchEpisode(blueprint, env, episode)
    assert update is not None
    return SearchUpdates(blueprint, env, update, update)


@dataclass(frozen=True)
class Past:
    """What a run has behind it, and how to go through it again."""

    folder: RunFolder
    config: Config
    links: Sequence[Link]
    from_start: bool
    watch: Watch | None

    @property
    def num_updates(self) -> int:
        """One more than have a link where the run diverged: what that one learned from is known."""
        has_diverged = (self.folder.path / "diverged_batch.safetensors").exists()
        return min(len(self.links) + has_diverged, self.config.experiment.num_intervals)

    def check_asked(self, update: int | None, env: int | None) -> None:
        if update is not None and update >= self.num_updates:
            raise ConfigError(f"update={update}: {self.folder.shown} has updates 0 to {self.num_updates - 1} so far")
        num_envs = self.config.experiment.num_envs
        if env is not None and env >= num_envs:
            raise ConfigError(f"env={env}: the run has environments 0 to {num_envs - 1}")

    def find(self, blueprint: Blueprint, search: Search, film: Film | None = None) -> tuple[Found, Verification]:
        """Make updates again until the search has what it looks for."""
        origin = self._origin(blueprint, search, film)
        rebuild, verifier = Rebuild(blueprint, self.folder, origin, film), Verifier(self.folder, self.links, origin)
        found: Found | None = None
        with rebuild.updates() as updates:
            verifier.check_origin(rebuild.first_chain)
            for rebuilt in updates:
                verifier.check(rebuilt)
                found = search.look(rebuilt)
                if self.watch is not None:
                    self.watch(rebuilt.update, self.num_updates)
                if found is not None or rebuilt.update + 1 >= self.num_updates:
                    break
            found = found or search.rest()
        if found is None:
            raise MomentNotFound(search.not_found(self.num_updates))
        return found, verifier.result(())

    def with_frames(self, rebuilt: Replay, blueprint: Blueprint, found: Found) -> Replay:
        """Make the updates once more, with an environment that draws: whether that changed anything is seen again."""
        experiment, num_steps = self.config.experiment, blueprint.trajectory.num_steps
        make = make_rendering_env(experiment.env, experiment.env_args, experiment.imports)
        film = Film(found.env, {piece.rollout for piece in found.pieces}, make)
        _, verification = self.find(blueprint, SearchUpdates(blueprint, found.env, *found.updates), film)
        frames = [film.frame(*divmod(step, num_steps)) for step in rebuilt.arrays["step"].tolist()]
        verification = replace(verification, other_numerics=rebuilt.verification.other_numerics)
        return replace(rebuilt, frames=frames, fps=film.fps, verification=verification)

    def _origin(self, blueprint: Blueprint, search: Search, film: Film | None) -> Origin:
        if self.from_start or blueprint.schedule.repeats:  # environments may need versions again that are gone
            return Origin()

        def accepts(checkpoint: Checkpoint) -> bool:
            is_behind = film is not None and rollouts_made(checkpoint, film.env) > film.first_rollout
            return not is_behind and search.accepts(checkpoint)

        last_version = min(search.last_origin, len(self.links))
        return find_origin(self.folder, self.config, last_version, accepts, warn_on_stderr)
