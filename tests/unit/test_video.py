"""Films show the episodes that evaluations play, one frame for every observation, whatever an environment draws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from htsrl import A2C, Config, ConfigError, Experiment, Network, Placement, evaluate, record, replay, train
from htsrl.digest import read_links
from htsrl.runs.filming import drop_films_after, video_name
from htsrl.runs.folder import RunFolder
from htsrl.spaces import Interface
from htsrl.video.drawing import frame_size, pictures
from htsrl.video.replayed import film_replay
from htsrl.video.scene import PackedFrame, Scene, Shot
from htsrl.video.writer import write_video

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")

CARTPOLE = Experiment(
    "CartPole-v1", {"max_episode_steps": 15}, algorithm=A2C(), num_envs=2, sync_interval=5, total_steps=40
)


def quiet(run_dir: Path, **settings: Any) -> Placement:
    every = {"run_dir": run_dir, "tensorboard": False, "progress": "off", "checkpoint_every_updates": 1}
    return Placement(**{"backend": "inline", **every, **settings})


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "cartpole"
    train(Config(CARTPOLE, quiet(run_dir)))
    return run_dir


def frames_in(path: Path) -> int:
    count, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    return int(count)


def test_a_film_has_the_episodes_of_an_evaluation(cartpole: Path) -> None:
    played = evaluate(cartpole, episodes=2, seed=7, sampled=True)
    films = record(cartpole, episodes=2, seed=7, sampled=True)
    assert [film.episode_return for film in films] == list(played.returns)
    assert [film.length for film in films] == list(played.lengths)
    assert [frames_in(film.path) for film in films] == [length + 1 for length in played.lengths]
    assert {film.path.name for film in films} == {
        "step-0000000040-seed-7-sampled-episode-0.mp4",
        "step-0000000040-seed-7-sampled-episode-1.mp4",
    }
    assert not [path for path in (cartpole / "videos").iterdir() if path.name.startswith(".tmp")]


def test_a_memory_and_an_environment_that_draws_nothing_are_filmed_too(tmp_path: Path) -> None:
    network = Network(recurrent="gru", recurrent_size=4)
    experiment = replace(CARTPOLE, env="htsrl/PixelCatch-v0", env_args={"num_drops": 1}, network=network)
    train(Config(experiment, quiet(tmp_path / "run")))
    (film,) = record(tmp_path / "run", output=tmp_path / "film.gif", seed=3)
    played = evaluate(tmp_path / "run", episodes=1, seed=3)
    assert (film.episode_return, film.length) == (played.returns[0], played.lengths[0])
    from PIL import Image

    with Image.open(tmp_path / "film.gif") as image:
        assert getattr(image, "n_frames", 1) == film.length + 1


def test_a_replayed_stretch_is_filmed_and_still_verified(cartpole: Path, tmp_path: Path) -> None:
    rebuilt = replay(cartpole, update=2, env=1, frames=True)
    assert rebuilt.is_verified
    assert all(frame is not None and frame.shape == (400, 600, 3) for frame in rebuilt.frames)
    assert len({frame.tobytes() for frame in rebuilt.frames if frame is not None}) > 1
    assert film_replay(rebuilt, tmp_path / "stretch.mp4") == rebuilt.num_steps == frames_in(tmp_path / "stretch.mp4")


def test_films_beside_training_change_no_bit(cartpole: Path, tmp_path: Path) -> None:
    train(Config(CARTPOLE, quiet(tmp_path / "run", video_every=1_000_000)))
    assert read_links(tmp_path / "run") == read_links(cartpole)
    assert [path.name for path in (tmp_path / "run" / "videos").iterdir()] == ["step-0000000040-seed-0.mp4"]
    length = evaluate(tmp_path / "run", episodes=1).lengths[0]
    assert frames_in(tmp_path / "run" / "videos" / "step-0000000040-seed-0.mp4") == length + 1


def test_a_film_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def breaks() -> Any:
        yield np.zeros((16, 16, 3), np.uint8)
        raise RuntimeError("the drawing broke")

    with pytest.raises(RuntimeError, match="the drawing broke"):
        write_video(tmp_path / "film.mp4", breaks(), fps=30)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"must end in .mp4 or .gif"):
        write_video(tmp_path / "film.avi", [], fps=30)


def scene(action_space: spaces.Space[Any], frame: Any, num_shots: int = 3) -> Scene:
    interface = Interface(spaces.Box(-1, 1, (40,), np.float32), action_space)
    layout = interface.actions
    action = np.zeros(layout.shape, layout.dtype)
    means = np.zeros(layout.num_continuous) if layout.num_continuous else None
    count = sum(layout.categories)
    shares = np.full(count, 1 / max(count, 1)) if count else None
    seen = {"obs": np.linspace(-1, 1, 40, dtype=np.float32)}
    shots = [
        Shot(i, 1.5 * i, seen, PackedFrame.of(frame), float(i), shares, means, action) for i in range(num_shots - 1)
    ]
    return Scene(
        "A title " * 9, "subtitle", interface, 30.0, [*shots, Shot(num_shots, 9.0, seen, PackedFrame.of(frame))]
    )


@pytest.mark.parametrize("size", [(210, 160), (16, 16), (900, 30), (30, 900), (1081, 1921), (1, 1)])
def test_frames_of_any_shape_become_pictures_of_one_even_size(size: tuple[int, int]) -> None:
    frame = np.full((*size, 3), 200, np.uint8)
    drawn = list(pictures(scene(spaces.Discrete(3), frame)))
    assert len({picture.shape for picture in drawn}) == 1
    height, width, _ = drawn[0].shape
    assert height % 2 == width % 2 == 0
    assert height <= 482
    shown_width, shown_height = frame_size(*size)
    assert shown_width <= 640
    assert shown_height <= 480
    assert (drawn[0] == 200).all(axis=-1).sum() >= min(shown_width * shown_height, 1)


SPACES = {
    "many values": spaces.Discrete(300),
    "several choices": spaces.MultiDiscrete([3, 5, 2]),
    "continuous": spaces.Box(-2, 2, (17,), np.float32),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "both": spaces.Dict({"a": spaces.Discrete(4), "b": spaces.Box(-1, 1, (2,), np.float32)}),
}


@pytest.mark.parametrize("kind", SPACES)
def test_actions_of_any_kind_are_drawn_beside_curves(kind: str) -> None:
    drawn = list(pictures(scene(SPACES[kind], None)))
    assert len(drawn) == 3
    assert (drawn[0] != drawn[2]).any()


def test_other_bits_take_the_films_of_later_policies_with_them(tmp_path: Path) -> None:
    videos = RunFolder(tmp_path).videos_dir
    videos.mkdir(parents=True)
    names = [video_name(steps, 0, "mp4") for steps in (100, 200, 300)]
    for name in (*names, "step-my own.mp4"):
        (videos / name).write_bytes(b"film")
    drop_films_after(RunFolder(tmp_path), 200)
    assert sorted(path.name for path in videos.iterdir()) == [*names[:2], "step-my own.mp4"]
