"""`htsrl.record`: films of episodes that a run's policy plays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from htsrl.config import EnvFactory, Experiment
from htsrl.config.file import env_name
from htsrl.envs.rendering import fps_of, make_rendering_env
from htsrl.errors import ConfigError
from htsrl.numerics import single_threaded
from htsrl.processes.current_folder import current_folder_kept
from htsrl.runs.filming import video_name
from htsrl.runs.folder import RunFolder
from htsrl.runs.load_policy import policy_of
from htsrl.runs.saved_policy import Choice
from htsrl.runs.trust import Vouched, admitted_config
from htsrl.video.drawing import pictures
from htsrl.video.scene import Scene
from htsrl.video.writer import check_can_write, write_video

if TYPE_CHECKING:
    from htsrl.runs.trained_policy import TrainedPolicy

Watch = Callable[[str], None]
"""Is told again and again what is being done, in words."""


@dataclass(frozen=True)
class Recording:
    """The film of one episode."""

    path: Path
    episode: int
    episode_return: float
    length: int
    """Steps, and so one frame less than the film has."""
    version: int


def record(
    run_dir: Path | str,
    episodes: int = 1,
    seed: int = 0,
    sampled: bool = False,
    format: Literal["mp4", "gif"] = "mp4",  # noqa: A002  (as the flag is called)
    output: Path | str | None = None,
    checkpoint: Choice = "newest",
    env: str | EnvFactory | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
    env_args: Mapping[str, Any] | None = None,
    watch: Watch = lambda line: None,
) -> list[Recording]:
    """Film `episodes` of a run's policy, the very ones that `htsrl.evaluate` plays with this seed.

    Without `output` they are RUN_DIR/videos/step-STEPS-seed-SEED-episode-N, `-sampled` behind the seed; with it, one is
    that file, and several have their number before its suffix. docs/security.md tells of `imports` and `trust`.
    """
    if episodes < 1:
        raise ConfigError(f"episodes={episodes} must be at least 1")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed={seed} must be from 0 to 2**63 - 1")
    folder = RunFolder.existing(Path(run_dir))
    check_can_write(Path(output) if output is not None else Path(f"video.{format}"))
    config = admitted_config(folder.config_file, env, Vouched(imports=tuple(imports), everything=trust))
    experiment = replace(config.experiment, env_args={**config.experiment.env_args, **(env_args or {})})
    policy = policy_of(folder, experiment, folder.interface(), checkpoint)
    steps = policy.version * experiment.batch_steps
    named = folder.videos_dir / video_name(steps, seed, format, sampled) if output is None else Path(output)
    with current_folder_kept(), single_threaded():
        return film_episodes(experiment, policy, Take(named.absolute(), episodes, seed, sampled), watch)


@dataclass(frozen=True)
class Take:
    """What to film, and where to put it."""

    path: Path
    episodes: int = 1
    seed: int = 0
    sampled: bool = False

    def path_of(self, episode: int) -> Path:
        if self.episodes == 1:
            return self.path
        return self.path.with_name(f"{self.path.stem}-episode-{episode}{self.path.suffix}")


def film_episodes(
    experiment: Experiment, policy: TrainedPolicy, take: Take, watch: Watch = lambda line: None
) -> list[Recording]:
    """Play and film episodes with a policy in one's hands."""
    from htsrl.video.play import Player, action_names, check_spaces

    env = make_rendering_env(experiment.env, experiment.env_args, experiment.imports)()
    try:
        check_spaces(env, policy)
        player, fps, names, made = Player(env, policy, take.seed, take.sampled), fps_of(env), action_names(env), []
        for episode in range(take.episodes):
            filmed = player.play(episode, lambda step, e=episode: watch(f"played {step:,} steps of episode {e}"))  # type: ignore[misc]
            subtitle = f"episode {episode}, seed {take.seed}, version {policy.version}"
            scene = Scene(_title(experiment), subtitle, policy.interface, fps, filmed.shots, names)
            path = take.path_of(episode)
            write_video(path, _told(scene, watch), fps)
            score, length = filmed.played.score, len(filmed.shots) - 1
            made.append(Recording(path, episode, score, length, policy.version))
        return made
    finally:
        env.close()


def _told(scene: Scene, watch: Watch) -> Any:
    for done, picture in enumerate(pictures(scene), start=1):
        yield picture
        watch(f"drawn {done:,} of {len(scene.shots):,} frames")


def _title(experiment: Experiment) -> str:
    return re.sub(r"^.*/(?=[^/]+$)", "", env_name(experiment.env))
